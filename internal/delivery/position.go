package delivery

import (
	"time"

	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

func signPosition(key []byte, chainID string, revision int64, now time.Time) *pb.Position {
	issued := now.Unix()
	return &pb.Position{
		ChainId: chainID, Revision: revision, Issued: issued,
		Mac: trust.PositionMAC(key, chainID, revision, issued),
	}
}

func isPositionAuthentic(key []byte, p *pb.Position) bool {
	return trust.VerifyPositionMAC(key, p.GetChainId(), p.GetRevision(), p.GetIssued(), p.GetMac())
}
