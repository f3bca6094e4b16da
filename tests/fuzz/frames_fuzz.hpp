#pragma once

#include <cstddef>
#include <cstdint>

/// Passes the bytes to everything that reads what a stranger or a peer sends: the frame parser, the handshake and every
/// decoder. Aborts if the encoding of an accepted message differs from the bytes that were accepted.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
