// Slurm's two compressed notations, as far as a rank needs them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aliquot {

/// The first host of a node list: "node01" of "node[01-04,07],login2", "r1n3" of "r[1-2]n[3,5]". Empty for an
/// empty list.
std::string first_host(std::string_view node_list);

/// The tasks of node `node` (from 0) in "2(x3),1": 2, 2, 2, 1. Nothing if the text does not say.
std::optional<int> tasks_of_node(std::string_view tasks_per_node, int node);

}  // namespace aliquot
