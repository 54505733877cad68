#include "aliquot/pager/storage.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace aliquot::storage {
namespace {

void delete_tag(void* context) {
  delete static_cast<StorageTag*>(context);
}

// The context survives: see [Note: paged storage].
void repoint(c10::StorageImpl& storage, void* data) {
  at::DataPtr& old = storage._mutable_data_ptr_no_checks();
  const c10::Device device = old.device();
  void* tag = old.release_context();
  storage.set_data_ptr_noswap(at::DataPtr(data, tag, &delete_tag, device));
}

}  // namespace

StorageTag* tag_of(c10::StorageImpl& storage) {
  const at::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (data.get_deleter() != &delete_tag) return nullptr;
  return static_cast<StorageTag*>(data.get_context());
}

c10::StorageImpl* of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

void adopt(c10::StorageImpl& storage, StorageTag tag) {
  const c10::Device device = storage._mutable_data_ptr_no_checks().device();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, new StorageTag(std::move(tag)), &delete_tag, device));
  storage.set_resizable(false);
}

void point_to(c10::StorageImpl& storage, void* data) {
  repoint(storage, data);
  storage.clear_data_ptr_access_error_msg_();
}

void point_nowhere(c10::StorageImpl& storage, std::string why) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
  repoint(storage, nullptr);
}

void forbid(c10::StorageImpl& storage, std::string why) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
}

void allow(c10::StorageImpl& storage) {
  storage.clear_data_ptr_access_error_msg_();
}

void hand_back(c10::StorageImpl& storage, const void* data, size_t bytes) {
  at::DataPtr owned = c10::GetCPUAllocator()->allocate(bytes);
  if (bytes > 0) std::memcpy(owned.get(), data, bytes);
  storage.set_data_ptr_noswap(std::move(owned));
  storage.clear_data_ptr_access_error_msg_();
}

}  // namespace aliquot::storage
