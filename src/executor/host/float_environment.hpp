#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strait::host {

/// Sets the default floating-point environment for the lifetime of the object. The thread's own settings may flush
/// subnormals to zero (libraries built with -ffast-math do that at load time) or trap on NaN. Writing the control
/// register is slow, so it is written only if its value differs.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : saved_(get()) {
    if (differs()) set(default_control);
  }
  ~DefaultFloatEnvironment() {
    if (differs()) set(saved_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t default_control = 0x1f80;  // all exceptions masked
  // The exception flags, which are no settings.
  static constexpr std::uint64_t sticky_flags = 0x3f;
  static std::uint64_t get() { return _mm_getcsr(); }
  static void set(std::uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t default_control = 0;
  static constexpr std::uint64_t sticky_flags = 0;
  static std::uint64_t get() {
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set(std::uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
#else
#error "DefaultFloatEnvironment needs this processor's floating-point control register"
#endif
  bool differs() const { return (saved_ & ~sticky_flags) != default_control; }

  std::uint64_t saved_;
};

}  // namespace strait::host
