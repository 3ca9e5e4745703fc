package delivery

import (
	"context"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// StreamTracker records the streams of agents, and the certificates that they show.
type StreamTracker interface {
	// StreamUp records that the agent is connected, by TransportTLS or TransportWebSocket.
	StreamUp(uid, transport string)
	// StreamDown records that the agent is disconnected, and when its last bytes came.
	StreamDown(uid string, heard time.Time)
	// RecordCertificate records the newest certificate of a connected agent: its end, the
	// generation of the CA that signed it, and whether its renewal is overdue.
	RecordCertificate(uid string, ends time.Time, generation int, overdue bool)
}

// Inventory receives what sessions report about members.
type Inventory interface {
	RecordInventory(uid string, inventory *pb.Inventory)
	// IsAPISetStored reports whether the hub has the list of APIs with that hash.
	IsAPISetStored(ctx context.Context, hash string) (bool, error)
	// RecordUnclaimed records the bundles that the member holds without a row.
	RecordUnclaimed(uid string, bundles []string)
	// RecordMisbehaviour records that an agent sent what no agent may send.
	RecordMisbehaviour(uid, what string)
}

// Store is the hub's store.
type Store interface {
	// StorePosition returns the present position of the store.
	StorePosition() (chainID string, revision int64)
	// HubState returns the present state, nil before the first start is written.
	HubState() *enginev1.HubState
	// OnRowAhead reports that a cluster holds a generation above its row's. The row must be
	// raised above it.
	OnRowAhead(bundle, cluster string, generation int64)
}

// Restore is the restore of a store from a backup.
type Restore interface {
	// OnRewind gets the proof that the store was set back, once until Reset. From then until
	// Reset the gateway holds by itself.
	OnRewind(reason string)
	// IsRecalling reports whether an agent must first report its recorded removals.
	// Until they are settled, nothing is ordered of the agent.
	IsRecalling() bool
	// OnRemembered gets the recorded removals of an agent. The gateway requests them when
	// its session begins while the gateway holds or IsRecalling.
	OnRemembered(removals Remembered)
}

// Departures are clusters that leave the fleet. The methods may block.
type Departures interface {
	// ForgetDepartedCluster is called when the agent of such a cluster holds nothing any more. behind lists
	// objects that stay although they should be gone. It deletes the Cluster, unless that has
	// changed.
	ForgetDepartedCluster(ctx context.Context, c *v1alpha1.Cluster, behind []string) error
	// RecordDepartureBlocker gets what keeps such an agent from releasing its member, and since when by
	// its clock. An empty reason means that nothing does.
	RecordDepartureBlocker(ctx context.Context, c *v1alpha1.Cluster, waits string, since time.Time) error
}
