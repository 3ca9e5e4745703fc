package restore

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// MaxChainLinks is how many starts the chain stores.
const MaxChainLinks = 1000

// MaxRevisionJump is how many revisions a store may be ahead of its newest key. Only a
// restore with a revision bump, which etcd advises to be 1e9, goes beyond.
const MaxRevisionJump = 100_000_000

// Start describes a start of the hub.
type Start struct {
	ID string
	// Revision of the store: where the start before this one ended.
	Revision int64
	// Restored is why the store is known to be an older state; empty if it is not.
	Restored string
}

// BeginStart returns the state with the start of that id begun: from its revision on no hub gives a
// position of the present link, and the start may be appended. From its revision on no hub gives a
// position of that link, and the start of that id may be appended at that revision.
func BeginStart(old enginev1.HubState, id string) enginev1.HubState {
	next := *old.DeepCopy()
	next.Beginning = id
	return next
}

// AppendStart returns the state after a start: the link is added, and a store that is known
// to be set back begins to hold, unless it holds already.
func AppendStart(old enginev1.HubState, s Start, now time.Time) enginev1.HubState {
	next := *old.DeepCopy()
	next.Beginning = ""
	next.Chain = append(next.Chain, enginev1.ChainLink{ID: s.ID, Revision: s.Revision})
	if n := len(next.Chain); n > MaxChainLinks {
		next.Chain = slices.Clone(next.Chain[n-MaxChainLinks:])
	}
	if s.Restored != "" {
		next = HoldHub(next, s.Restored, now)
	}
	return next
}

// HoldHub returns the state of a hub that found out that its store was set back. One that holds
// already keeps its content.
func HoldHub(old enginev1.HubState, reason string, now time.Time) enginev1.HubState {
	next := *old.DeepCopy()
	if next.Rewound != nil && next.Rewound.Accepted == "" {
		return next
	}
	next.Rewound = &enginev1.Rewound{Since: metav1.NewTime(now), Reason: reason}
	return next
}

// NeedsKeyScan reports whether the store is so far ahead of the last start that its newest key has
// to be looked at: see RevisionJumpReason.
func NeedsKeyScan(chain []enginev1.ChainLink, revision int64) bool {
	return len(chain) > 0 && revision-chain[len(chain)-1].Revision > MaxRevisionJump
}

// RevisionJumpReason returns why a store whose newest key was written at that revision must have
// been restored with a revision bump; empty when it need not.
func RevisionJumpReason(newest, revision int64) string {
	if revision-newest <= MaxRevisionJump {
		return ""
	}
	return fmt.Sprintf("the store is at revision %d and nothing in it is newer than %d: it was restored from a snapshot, with a revision bump", revision, newest)
}
