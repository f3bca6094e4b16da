#pragma once

#include <string>

#include "base/error.hpp"

/// Files that a user names for the results of a command.
namespace strait::tools {

/// Of a drawing: an error unless its name ends in .svg, or is that of a device or pipe.
Status check_svg(const std::string& option, const std::string& path);

Status write_file(const std::string& path, const std::string& text);

/// That `write_file` will be able to, as far as can be told without writing: asked before what takes long.
Status check_writable(const std::string& path);

}  // namespace strait::tools
