// The one at::RecordFunction callback that all pagers of a process share.
#pragma once

namespace aliquot::observer {

/// Installs the callback with the first pager; `detach` removes it with the last.
void attach();
void detach();

}  // namespace aliquot::observer
