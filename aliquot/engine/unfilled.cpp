#include "aliquot/engine/unfilled.h"

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/accumulate.h>

namespace aliquot {

at::Tensor unfilled(at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor tensor = at::empty({0}, type);
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type));
  at::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, at::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr,
      /*resizable=*/false));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_sizes_contiguous(shape);
  return tensor;
}

bool is_unfilled(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->has_storage() && tensor.numel() > 0 && impl->unsafe_storage().data() == nullptr;
}

}  // namespace aliquot
