// Names only: a kernel that uses them needs a GPU.
#pragma once
namespace cub {}
