// The exceptions of the library.
//
// Every message says what was wrong, where (file, key path, rank, parameter), what was expected and what to
// do. A broken invariant of ours, which no input can cause, is an InternalError.
#pragma once

#include <stdexcept>
#include <string>

namespace aliquot {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A ds_config.json, or a command line, that cannot be obeyed.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A call that the state of the engine does not allow; the engine is unchanged.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A peer that is missing, late or diverged; the engine cannot go on.
class CommError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be read or written, or whose contents are wrong.
class IoError : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

/// Throws InternalError with `what` unless `ok`.
inline void check(bool ok, const char* what) {
  if (!ok) throw InternalError(std::string("internal error: ") + what);
}

}  // namespace aliquot
