#pragma once

// GCC tells of its sanitizers by macros, clang by features.
#if defined(__has_feature)
#define STRAIT_HAS_FEATURE(name) __has_feature(name)
#else
#define STRAIT_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || STRAIT_HAS_FEATURE(address_sanitizer)
#define STRAIT_UNDER_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__) || STRAIT_HAS_FEATURE(thread_sanitizer)
#define STRAIT_UNDER_THREAD_SANITIZER
#endif

namespace strait::testing {

/// Whether a sanitizer that makes programs several times slower is at work.
#if defined(STRAIT_UNDER_ADDRESS_SANITIZER) || defined(STRAIT_UNDER_THREAD_SANITIZER)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

}  // namespace strait::testing
