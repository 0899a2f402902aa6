#pragma once

#include <pthread.h>

namespace edgewise {

// Shown by top and gdb; at most 15 characters.
inline void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace edgewise
