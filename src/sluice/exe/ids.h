#pragma once
#include "sluice/base/ids/id.h"

/// Indices into the tables of an Executable.
namespace sluice::exe {

using DeviceId = Id<struct DeviceTag>;      ///< Executable::devices.
using ArenaId = Id<struct ArenaTag>;        ///< Executable::arenas.
using StreamId = Id<struct StreamTag>;      ///< Executable::streams.
using FeedId = Id<struct FeedTag>;          ///< Executable::feeds.
using BufferId = Id<struct BufferTag>;      ///< Executable::remote_buffers.
using VariableId = Id<struct VariableTag>;  ///< Executable::variables.
using ConstantId = Id<struct ConstantTag>;  ///< Executable::constants.
using ChannelId = Id<struct ChannelTag>;    ///< Executable::channels.
using GroupId = Id<struct GroupTag>;        ///< Executable::groups.
using ValueId = Id<struct ValueTag>;        ///< Executable::values.
using FunctionId = Id<struct FunctionTag>;  ///< Executable::functions.
using ParamId = Id<struct ParamTag>;        ///< Function::params and the arguments of its calls.

inline constexpr ValueId kNoValue;

}  // namespace sluice::exe
