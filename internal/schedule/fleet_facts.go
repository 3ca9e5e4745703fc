package schedule

import "atoll.dev/atoll/internal/atoll"

// FleetFacts are facts about clusters that change more often than the clusters, and must not
// change during a decision. A decision reads them only where they count: of 1,000 clusters
// of which 10 fit, at most 10 answers of one fact, and none where all that fit are taken
// (TestFactsAreReadWhereTheyCount).
type FleetFacts interface {
	// AssignedPods returns how many pods a cluster was assigned, for the score Balance.
	AssignedPods(c *Cluster) int64
	// RatingOf returns, for the score ClusterScore, the rating of a cluster by a measure,
	// from 0 to 1000.
	RatingOf(c *Cluster, measure string) int64
	// FreeReplicas returns how many replicas of the workloads a cluster has free capacity
	// for, including those that it runs of them; false: not known.
	FreeReplicas(c *Cluster) (replicas int64, known bool)
	// UsageOf returns what other Bundles and this one use of a cluster that states its
	// capacity.
	UsageOf(c *Cluster) (others, own ResourceUsage)
	// ConnectionOf returns whether a fitting cluster is connected, for failback and for new work.
	ConnectionOf(c *Cluster) Connection
}

// Connection is what is known of the connection of a cluster.
type Connection uint8

// The connections.
const (
	Connected Connection = iota
	// Uncertain: it was lost together with so many others that the hub itself may be cut off. Nothing
	// moves to it, and it gets its part of new work.
	Uncertain
	Disconnected
)

// NoFacts are the facts about an unused fleet that is connected. Other FleetFacts embed it.
type NoFacts struct{}

// AssignedPods returns 0.
func (NoFacts) AssignedPods(*Cluster) int64 { return 0 }

// RatingOf returns 0.
func (NoFacts) RatingOf(*Cluster, string) int64 { return 0 }

// FreeReplicas returns false.
func (NoFacts) FreeReplicas(*Cluster) (int64, bool) { return 0, false }

// UsageOf returns no usage.
func (NoFacts) UsageOf(*Cluster) (others, own ResourceUsage) { return nil, nil }

// ConnectionOf returns Connected.
func (NoFacts) ConnectionOf(*Cluster) Connection { return Connected }

// BundleClusters are the clusters that one Bundle runs in.
type BundleClusters []atoll.ClusterView

// resolveFacts returns the facts of the input, or NoFacts.
func (in *Input) resolveFacts() FleetFacts {
	if in.Facts == nil {
		return NoFacts{}
	}
	return in.Facts
}
