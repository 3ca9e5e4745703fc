package peer

import (
	"slices"
	"time"

	"atoll.dev/atoll/internal/peer/peerpb"
)

const (
	// maxName bounds UIDs and names that another hub sends, in bytes, and maxCarriage a text about
	// how a connection comes.
	maxName     = 512
	maxCarriage = 1 << 10
	// maxClock bounds the begin of a session by the clock of union. No clock of a hub comes near it.
	maxClock = 1 << 62
	// maxAhead is how far a begin may be ahead of this hub's clock; a later one counts as that. The clock
	// of union counts on from the latest begin that it has seen, by a microsecond each, so that this hub's
	// own clock overtakes it.
	maxAhead = 24 * time.Hour
	// maxQuiet is the longest time that a duration holds, in milliseconds.
	maxQuiet = int64(1<<63-1) / int64(time.Millisecond)
	// maxCertificateEnd is the last second of the year 9999, after which a time is no JSON.
	maxCertificateEnd = 253402300799
)

// dropMalformed takes out of a piece what no hub may send, and returns how many entries that were. One
// such entry would otherwise outlast its hub: the clock of sessions never goes back.
func dropMalformed(told *peerpb.Told) (dropped int) {
	before := len(told.GetSessions()) + len(told.GetGone()) + len(told.GetAhead())
	told.Sessions = slices.DeleteFunc(told.GetSessions(), func(s *peerpb.Session) bool {
		return !mayBeUIDOrName(s.GetUid()) || s.GetAt() < 0 || s.GetAt() > maxClock || len(s.GetCarriage()) > maxCarriage ||
			s.GetCertificateEnds() < 0 || s.GetCertificateEnds() > maxCertificateEnd
	})
	told.Gone = slices.DeleteFunc(told.GetGone(), func(g *peerpb.Gone) bool {
		return !mayBeUIDOrName(g.GetUid()) || g.GetQuiet() > maxQuiet || g.GetQuiet() < -maxQuiet
	})
	told.Ahead = slices.DeleteFunc(told.GetAhead(), func(a *peerpb.Ahead) bool {
		return !mayBeUIDOrName(a.GetBundle()) || !mayBeUIDOrName(a.GetCluster()) || a.GetGeneration() < 0
	})
	if len(told.Ahead) > aheadLimit {
		told.Ahead = told.Ahead[:aheadLimit]
	}
	return before - len(told.Sessions) - len(told.Gone) - len(told.Ahead)
}

// mayBeUIDOrName reports whether the text may be a UID, or a name.
func mayBeUIDOrName(text string) bool { return text != "" && len(text) <= maxName }
