// Names only: a kernel that uses them needs a GPU.
#pragma once
namespace nvcuda {
namespace wmma {}
}  // namespace nvcuda
