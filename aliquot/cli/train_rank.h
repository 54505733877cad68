// One rank of `aliquot train`, from its first line to its last.
#pragma once

#include "aliquot/cli/train_options.h"
#include "aliquot/comm/rendezvous.h"

namespace aliquot {

/// Joins the other ranks and trains. Rank 0 writes to standard output and to output_folder(options). It asks
/// stop_requested() (stop_signal.h) once a step and then ends at the next boundary with its summary, as a
/// success. Errors are exceptions: rank_main.cpp prints them, reports them to the launcher and chooses the
/// exit code.
void train_rank(const TrainOptions& options, const Rendezvous& rendezvous);

}  // namespace aliquot
