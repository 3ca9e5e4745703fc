// Package pace is the one place that limits rates: token buckets, and the table of the rates
// that the hub keeps.
//
// Contract: a Bucket is a value without clock and lock. A Limiter and a KeyedLimiter may be used
// concurrently, and only Wait reads the clock and blocks. golang.org/x/time/rate takes no more
// tokens than the burst at once, takes no parts of tokens back, and has no limiter that is a
// value of 40 bytes for each row.
//
// Other limits of work are elsewhere. Both programs compute the schedule of check-ins (checkin).
// Keys have a debounce and a backoff (reconcile), and reports a delay by their weight (delivery).
// An allowance whose end closes a connection is the floodGuard of h2. An agent's requests to its
// member are limited by client-go.
package pace

import "time"

// Changes that clusters cause by themselves, such as health that turns and counts that change,
// have a budget of writes. Neither the number of rows nor the rate of flapping can raise it, so
// that the API server stays free for people and their orders. The results of an order (the first
// Ready of a generation, a removal) do not wait for it.
//
// A change in a member reaches the Bundle's status in less than ten seconds while 500 slices of
// 1,000-row Bundles flap. Each stage takes at most: 0.1 s the agent, 5 s the gateway (500 slices
// at SliceWrites, or BundleSliceWrites), 0.3 s a write, 0.25 s until the reconcile, 2 s
// StatusWriteInterval, 0.3 s a write: 8 s. With more slices, only the gateway's stage grows.
var (
	// SliceWrites are the writes of TargetSlices of one hub. One of 200 rows costs the API
	// server about 4 ms of CPU: so many are 0.4 of a core.
	SliceWrites = PerSecond(100, 100)
	// BundleSliceWrites are those writes of one Bundle.
	BundleSliceWrites = Rate{4 * time.Second, 3}
	// StatusWrites are the writes of statuses of Bundles and templates, of the hub that leads.
	// One costs about 3 ms.
	StatusWrites = PerSecond(50, 50)
	// ClusterWrites are the writes of Clusters' statuses of which only the requests of their pods have
	// changed, of one hub. One costs about 2 ms.
	ClusterWrites = PerSecond(20, 20)
)

// StatusWriteInterval is the shortest time between two writes of the status of one Bundle or
// template for such changes.
const StatusWriteInterval = 2 * time.Second

var (
	// ProfileWrites are the writes of ClusterProfiles, behind the hub's other work.
	ProfileWrites = PerSecond(50, 50)
	// NewAPISets are the sets of APIs that one member may add: it installs CRDs one after
	// another.
	NewAPISets = Rate{time.Hour, 5}
	// ConditionChanges are the writes because a condition of one Cluster changed. The Cluster's
	// other changes are written with them.
	ConditionChanges = Rate{10 * time.Second, 20}
	// NodeGroupChanges are the writes because nodes of one Cluster have other labels or taints. Some
	// labels change all the time.
	NodeGroupChanges = Rate{10 * time.Minute, 10}
	// UnplacedEvents are the Events about Bundles without a place, of all Bundles: a lack of
	// places for all has one cause, and the last Bundles report it only if it lasts.
	UnplacedEvents = PerSecond(5, 50)
	// HandshakesPerCore are the TLS handshakes that may start while many wait.
	HandshakesPerCore = PerSecond(250, 100)
	// ClosesPerCore are the connections that end. Each takes some hundred microseconds; when a
	// network path fails, thousands end at once and would delay all other work of the process.
	ClosesPerCore = PerSecond(2000, 100)
	// Reissues are the certificates that no agent has requested. 100,000 take 17 minutes and a
	// twentieth of a core.
	Reissues = PerSecond(100, 1)
	// AgentStarts are the starts of agents in the hub: a thousand have started after 20 s, with
	// CPU left for people during that time.
	AgentStarts = PerSecond(50, 20)
	// MemberAnswers are the KiB of memory that the answers of one member take in the hub that runs its
	// agent: 256 MiB at once, and 16 MiB a second.
	MemberAnswers = PerSecond(16<<10, 256<<10)
	// StrangerLines are the lines of the log about callers without a certificate. The metric
	// refused_total counts every refusal.
	StrangerLines = PerSecond(1, 50)
	// RepeatedWarnings are the warnings of one kind about one cluster.
	RepeatedWarnings = Rate{10 * time.Minute, 1}
	// NotificationMessages are the messages of one Notification. Events beyond them come together, in one message.
	NotificationMessages = Rate{30 * time.Second, 10}
	// FullWarnings are the warnings that the hub has no place for another connection.
	FullWarnings = Rate{time.Minute, 1}
)
