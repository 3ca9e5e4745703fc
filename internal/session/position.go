package session

import (
	"fmt"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// CheckPosition tells whether a position, whose MAC the caller has verified, proves
// that the hub's store was set back, and how. chain is the hub's, oldest first;
// forgiven is the moment, in Unix seconds, before which evidence is covered by a
// rewind that an administrator has accepted already (0: none).
//
// An id that the chain does not hold is no proof where its revision lies before
// the oldest link, since old links are forgotten.
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
	return fmt.Sprintf("an agent saw revision %d of start %s, which this store does not know",
		p.GetRevision(), p.GetChainId()), true
}
