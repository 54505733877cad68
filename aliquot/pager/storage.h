// A parameter's storage as the pager's page: it points into its unit's bytes, or nowhere with an error text.
//
// [Note: paged storage]
// A parameter keeps its TensorImpl, sizes and strides; only its StorageImpl's DataPtr changes. The DataPtr's
// deleter is ours, so "is this ours, and which parameter?" is one pointer comparison and needs no table;
// views, detached tensors and tensors saved for backward share the storage and are covered too. While
// released, the storage carries an access-error text: most kernels would crash on an empty storage, with the
// text they throw it. Swapping a DataPtr would run the old one's deleter, so its context is released first
// and carried over. All of this is below autograd's version counter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <memory>
#include <string>

namespace aliquot {

class Pager;

/// What a paged storage knows; owned by its DataPtr.
struct StorageTag {
  std::weak_ptr<Pager> pager;  ///< expired when the engine is gone
  int param = -1;              ///< index into the engine's parameters
};

namespace storage {

/// The tag of a paged storage, null for any other.
StorageTag* tag_of(c10::StorageImpl& storage);

/// The StorageImpl of a tensor that has one, else null.
c10::StorageImpl* of(const at::Tensor& tensor);

/// Makes `storage` paged and frees what it held. It is not resizable from then on.
void adopt(c10::StorageImpl& storage, StorageTag tag);

/// Gather: points at `data`, clears the error text.
void point_to(c10::StorageImpl& storage, void* data);

/// Release: points nowhere; every access throws `why`.
void point_nowhere(c10::StorageImpl& storage, std::string why);

/// Every access throws `why` although the bytes stay; undone by `allow`.
void forbid(c10::StorageImpl& storage, std::string why);
void allow(c10::StorageImpl& storage);

/// Ends paging: `bytes` at `data` are copied into ordinary memory that the storage owns from then on.
void hand_back(c10::StorageImpl& storage, const void* data, size_t bytes);

}  // namespace storage
}  // namespace aliquot
