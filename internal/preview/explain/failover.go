package explain

import (
	"fmt"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// FailureNote is why a cluster keeps its copy although the application is unhealthy there.
type FailureNote struct {
	FailureReason atoll.Reason `json:"failureReason,omitempty"`
	FailureText   string       `json:"failureText,omitempty"`
}

// FailoverExplanation is what the policy states about the health of its application, and what the hub stored about it.
type FailoverExplanation struct {
	// Toleration is how long a copy is unhealthy before it counts as failed.
	Toleration string `json:"toleration"`
	// PurgeMode is when the old copy is removed.
	PurgeMode v1alpha1.PurgeMode `json:"purgeMode"`
	// Clusters in which the application is unhealthy, or which it left for its health.
	Clusters []v1alpha1.FailoverCluster `json:"clusters,omitempty"`
	// ClustersBeforeFailover had a copy when one failed last.
	ClustersBeforeFailover []string `json:"clustersBeforeFailover,omitempty"`

	tolerated time.Duration
	now       time.Time
}

// explainFailover explains the failover of the application; nil: health moves nothing. Clusters without a verdict are not for the reader.
func (b Bundle) explainFailover(now time.Time) *FailoverExplanation {
	terms := b.Spec.Failover.GetApplication()
	if terms == nil {
		return nil
	}
	out := &FailoverExplanation{Toleration: phrase.FormatDuration(terms.Toleration()), PurgeMode: terms.Purge(), tolerated: terms.Toleration(), now: now}
	if b.Status.Failover == nil {
		return out
	}
	isVisible := func(cluster string) bool { _, has := b.Decision.FindVerdict(cluster); return has }
	for _, c := range b.Status.Failover.Clusters {
		if isVisible(c.Cluster) {
			out.Clusters = append(out.Clusters, c)
		}
	}
	for _, c := range b.Status.Failover.ClustersBeforeFailover {
		if isVisible(c) {
			out.ClustersBeforeFailover = append(out.ClustersBeforeFailover, c)
		}
	}
	return out
}

// writeText writes a line for each cluster that the failover is about.
func (f *FailoverExplanation) writeText(b *strings.Builder) {
	if f == nil {
		return
	}
	for i := range f.Clusters {
		if text := f.describeCluster(&f.Clusters[i]); text != "" {
			fmt.Fprintf(b, "  Failover: %s.\n", text)
		}
	}
	if len(f.ClustersBeforeFailover) > 0 {
		fmt.Fprintf(b, "  Clusters before the last failover: %s.\n", phrase.JoinFirst(f.ClustersBeforeFailover, maxNames, len(f.ClustersBeforeFailover)))
	}
}

// describeCluster returns what happens next about a cluster; empty where nothing does.
func (f *FailoverExplanation) describeCluster(c *v1alpha1.FailoverCluster) string {
	switch {
	case c.HasFailed():
		return fmt.Sprintf("the application failed in %s at %s, and leaves it if something replaces its copy", c.Cluster, phrase.FormatTime(c.FailedAt.Time))
	case c.IsClock():
		return fmt.Sprintf("the application is unhealthy in %s since %s; if that lasts, it counts as failed at %s", c.Cluster, phrase.FormatTime(c.UnhealthySince.Time), phrase.FormatTime(c.UnhealthySince.Add(f.tolerated)))
	case c.IsAvoided(f.now):
		return fmt.Sprintf("the application left %s for its health (%s), and does not come back before %s", c.Cluster, phrase.CountNoun(int(c.Failovers), "time"), phrase.FormatTime(c.AvoidedUntil.Time))
	}
	return ""
}

// isAllFailed reports whether all clusters that hold the Bundle keep an unhealthy copy. Old copies that leave do not count.
func (x BundleExplanation) isAllFailed() bool {
	hasFailed := false
	for _, c := range x.Clusters {
		if c.Row != nil && c.FailureReason == "" && c.Verdict != schedule.OutcomeLeaves {
			return false
		}
		hasFailed = hasFailed || c.FailureReason != ""
	}
	return hasFailed
}
