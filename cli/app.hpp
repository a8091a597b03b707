// SPDX-License-Identifier: Apache-2.0
#pragma once

/// So that headers need not include all of CLI11.
// NOLINTNEXTLINE(readability-identifier-naming): its name
namespace CLI {
class App;
}
