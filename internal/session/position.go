package session

import (
	"fmt"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// CheckPosition reports whether a position proves that the hub's store was set back, and
// how. The caller has verified the MAC of the position. chain is the hub's, oldest first.
// forgiven is a time in Unix seconds: an administrator has accepted a restore that covers
// earlier evidence (0: none).
//
// An id that the chain does not hold is no proof where its revision is before the oldest
// link, since old links are dropped.
func CheckPosition(chain []enginev1.ChainLink, forgiven int64, p *pb.Position) (reason string, rewound bool) {
	if p.GetChainId() == "" || len(chain) == 0 || p.GetIssued() < forgiven {
		return "", false
	}
	for i, link := range chain {
		if link.ID != p.GetChainId() {
			continue
		}
		if i+1 < len(chain) && p.GetRevision() > chain[i+1].Revision {
			return fmt.Sprintf("an agent saw revision %d of start %s, which in this store ended at revision %d",
				p.GetRevision(), link.ID, chain[i+1].Revision), true
		}
		return "", false
	}
	if p.GetRevision() < chain[0].Revision {
		return "", false
	}
	return fmt.Sprintf("an agent saw revision %d of start %s, which this store does not have",
		p.GetRevision(), p.GetChainId()), true
}
