package etcd

import (
	"strings"

	"go.etcd.io/raft/v3"
	"go.uber.org/zap/zapcore"
)

// replayPanicPrefix begins the panic of raft that isReplayPanic describes.
const replayPanicPrefix = "error scanning unapplied entries ["

// isReplayPanic reports whether raft panics with message because an election starts while etcd
// replays its log.
//
// A start hands the log to etcd in parts. Etcd applies a part and drops its entries from memory,
// while raft still counts them as unapplied. An election in this moment scans the dropped entries
// for changes of membership, and panics with ErrCompacted. On disk nothing is wrong.
//
// The only member may go on. Raft lets a node stand for election once its own membership is
// applied, and the log of a hub holds no other change. Entries are dropped only after they are applied.
func isReplayPanic(message string) bool {
	return strings.HasPrefix(message, replayPanicPrefix) && strings.HasSuffix(message, ": "+raft.ErrCompacted.Error())
}

// panicHook decides what follows a record of the level panic: the panic of isReplayPanic is left
// out, and raft goes on as after a scan that finds nothing.
type panicHook struct{}

func (panicHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if !isReplayPanic(entry.Message) {
		zapcore.WriteThenPanic.OnWrite(entry, fields)
	}
}
