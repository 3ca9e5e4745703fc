package rewind

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// ChainLimit is how many starts the chain remembers.
const ChainLimit = 1000

// JumpLimit is how many revisions a store may be ahead of its newest key. Only a
// restore with a revision bump, which etcd advises to be 1e9, goes beyond.
const JumpLimit = 100_000_000

// Start describes a start of the hub.
type Start struct {
	ID string
	// Revision of the store: where the start before this one ended.
	Revision int64
	// Restored says why the store is known to be an older state; empty if it is not.
	Restored string
}

// Begin gives the state in which the present link ends, whatever other hubs still do
// with the store: from its revision on nobody gives a position of that link, and the
// start of that id may be appended at that revision.
func Begin(old enginev1.HubState, id string) enginev1.HubState {
	next := *old.DeepCopy()
	next.Beginning = id
	return next
}

// Append gives the state after a start: the link is added, and a store that is known
// to be set back begins to hold, unless it holds already.
func Append(old enginev1.HubState, s Start, now time.Time) enginev1.HubState {
	next := *old.DeepCopy()
	next.Beginning = ""
	next.Chain = append(next.Chain, enginev1.ChainLink{ID: s.ID, Revision: s.Revision})
	if n := len(next.Chain); n > ChainLimit {
		next.Chain = slices.Clone(next.Chain[n-ChainLimit:])
	}
	if s.Restored != "" {
		next = Hold(next, s.Restored, now)
	}
	return next
}

// Hold gives the state of a hub that found out that its store was set back. One that
// holds already keeps what it says.
func Hold(old enginev1.HubState, reason string, now time.Time) enginev1.HubState {
	next := *old.DeepCopy()
	if next.Rewound != nil && next.Rewound.Accepted == "" {
		return next
	}
	next.Rewound = &enginev1.Rewound{Since: metav1.NewTime(now), Reason: reason}
	return next
}

// Suspicious tells whether the store is so far ahead of the last start that its
// newest key has to be looked at: see Jumped.
func Suspicious(chain []enginev1.ChainLink, revision int64) bool {
	return len(chain) > 0 && revision-chain[len(chain)-1].Revision > JumpLimit
}

// Jumped says why a store whose newest key was written at that revision must have
// been restored with a revision bump; empty when it need not.
func Jumped(newest, revision int64) string {
	if revision-newest <= JumpLimit {
		return ""
	}
	return fmt.Sprintf("the store is at revision %d and nothing in it is newer than %d: it was restored from a snapshot, with a revision bump", revision, newest)
}
