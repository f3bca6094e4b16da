#pragma once

#include <cstddef>
#include <cstdint>

/// Puts the bytes through everything that reads what a stranger or a peer sends: the frame parser, the handshake and
/// every decoder. Aborts if something that was accepted does not come back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
