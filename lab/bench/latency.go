package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// roundLimit bounds the measurement of one Deployment.
const roundLimit = time.Minute

func latencyCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use: "latency", Short: "Measure how soon a Deployment is in three clusters, and is shown as available, with each stage's share", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			numbers, err := withTemporaryDir(func(dir string) ([]benchNumber, error) {
				return withThreeMembers(cmd.Context(), dir, cmd.ErrOrStderr(), func(ctx context.Context, b *labBench) ([]benchNumber, error) {
					return b.measureLatency(ctx, o)
				})
			})
			if err != nil {
				return err
			}
			return o.writeNumbers(cmd.OutOrStdout(), numbers)
		},
	}
	o.addFormatFlags(cmd)
	o.addRoundsFlag(cmd)
	return cmd
}

// latencyRound is the latency of one Deployment, from the return of apply.
type latencyRound struct {
	// exists in the last member, is available in the last member, is shown as available by the hub.
	exists, available, shown time.Duration
}

// sighting is the first event with a state of a Deployment.
type sighting struct {
	name, where string
	isAvailable bool
	at          time.Time
}

// measureLatency measures the times from the return of apply to the object's appearance in all three
// members, and to its availability there and on the hub, by their watches.
func (b *labBench) measureLatency(ctx context.Context, o benchOptions) ([]benchNumber, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan sighting, 1000)
	for _, where := range append([]string{hubName}, memberNames...) {
		if err := b.watchDeployments(ctx, where, seen); err != nil {
			return nil, err
		}
	}
	before, err := b.readStages(ctx)
	if err != nil {
		return nil, err
	}
	var rounds []latencyRound
	for i := range o.rounds {
		name := fmt.Sprintf("latency-%d", i)
		if err := applyDeployment(ctx, b.hubClient, name, 2); err != nil {
			return nil, err
		}
		r, err := measureRound(ctx, seen, name, awaitedSightings{applied: time.Now(), onHub: true})
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	after, err := b.readStages(ctx)
	if err != nil {
		return nil, err
	}
	direct, err := b.measureMembersAlone(ctx, seen, o.rounds)
	if err != nil {
		return nil, err
	}
	return append(latencyNumbers(rounds, describeStages(before, after)), directNumber(direct)), nil
}

// measureMembersAlone measures the same Deployments where each member gets them directly, without the hub.
func (b *labBench) measureMembersAlone(ctx context.Context, seen <-chan sighting, n int) (rounds []latencyRound, err error) {
	for i := range n {
		name := fmt.Sprintf("direct-%d", i)
		var applies errgroup.Group
		for _, member := range memberNames {
			applies.Go(func() error { return applyDeployment(ctx, b.memberClients[member], name, 2) })
		}
		if err := applies.Wait(); err != nil {
			return nil, err
		}
		r, err := measureRound(ctx, seen, name, awaitedSightings{applied: time.Now()})
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// watchDeployments sends the sightings of the namespace's Deployments in a cluster until ctx ends.
func (b *labBench) watchDeployments(ctx context.Context, where string, seen chan<- sighting) error {
	c := b.hubClient
	if where != hubName {
		c = b.memberClients[where]
	}
	// The namespace is in a member only with its first object.
	w, err := c.AppsV1().Deployments(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch %s: %w", where, err)
	}
	go func() {
		available := map[string]bool{}
		for e := range w.ResultChan() {
			d, ok := e.Object.(*appsv1.Deployment)
			if !ok || d.Namespace != benchNamespace {
				continue
			}
			if e.Type == watch.Added {
				seen <- sighting{name: d.Name, where: where, at: time.Now()}
			}
			if isAvailable(d) && !available[d.Name] {
				available[d.Name] = true
				seen <- sighting{name: d.Name, where: where, isAvailable: true, at: time.Now()}
			}
		}
	}()
	return nil
}

func isAvailable(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
}

// awaitedSightings is what a round waits for, and since when.
type awaitedSightings struct {
	// applied is when apply returned.
	applied time.Time
	// onHub is true where the hub shows the Deployment, too.
	onHub bool
}

// measureRound waits until the Deployment is available in every member and, where it is, on the hub. An event before
// the return of apply counts as zero.
func measureRound(ctx context.Context, seen <-chan sighting, name string, awaited awaitedSightings) (r latencyRound, err error) {
	limit := time.NewTimer(roundLimit)
	defer limit.Stop()
	exists, available, isShown := 0, 0, !awaited.onHub
	for exists < len(memberNames) || available < len(memberNames) || !isShown {
		select {
		case s := <-seen:
			took := max(s.at.Sub(awaited.applied), 0)
			switch {
			case s.name != name:
			case s.where == hubName && s.isAvailable:
				r.shown, isShown = took, true
			case s.where == hubName:
			case s.isAvailable:
				r.available, available = max(r.available, took), available+1
			default:
				r.exists, exists = max(r.exists, took), exists+1
			}
		case <-limit.C:
			return r, fmt.Errorf("after %s, %s exists in %d members of %d, is available in %d, and is shown as available: %v", roundLimit, name, exists, len(memberNames), available, isShown)
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	return r, nil
}

// latencyNumbers returns the percentiles of the rounds, with the shares of the stages.
func latencyNumbers(rounds []latencyRound, stages string) []benchNumber {
	percentile := func(of func(latencyRound) time.Duration, p int) float64 { return percentileOf(rounds, of, p) }
	exists := func(r latencyRound) time.Duration { return r.exists }
	shown := func(r latencyRound) time.Duration { return r.shown }
	behind := func(r latencyRound) time.Duration { return max(r.shown-r.available, 0) }
	how := fmt.Sprintf("%d Deployments, one after the other; from apply's return to the last member's watch event", len(rounds))
	howShown := "the same, to the hub's watch event with the condition Available"
	return []benchNumber{
		{What: "apply to existing in 3 members, p50", Value: percentile(exists, 50), Unit: "s", Goal: "< 0.08 s", How: how, Detail: stages},
		{What: "apply to existing in 3 members, p95", Value: percentile(exists, 95), Unit: "s", Goal: "< 0.15 s", How: how},
		{What: "apply to Available on the hub, p50", Value: percentile(shown, 50), Unit: "s", Goal: "< 0.35 s", How: howShown},
		{What: "Available on the hub, after the last member, p95", Value: percentile(behind, 95), Unit: "s", Goal: "< 0.1 s", How: "the same, from the last member's watch event with that condition"},
	}
}

// directNumber returns what the members alone need for the same Deployments: no hub can show them sooner.
func directNumber(rounds []latencyRound) benchNumber {
	available := func(r latencyRound) time.Duration { return r.available }
	return benchNumber{
		What: "Available in the members alone, p50", Value: percentileOf(rounds, available, 50), Unit: "s",
		How: "the same Deployments, applied to each of the three members directly; from apply's return to the last member's watch event with that condition",
	}
}

// percentileOf returns the p-th percentile of a time of the rounds, in seconds.
func percentileOf(rounds []latencyRound, of func(latencyRound) time.Duration, p int) float64 {
	took := make([]float64, len(rounds))
	for i, r := range rounds {
		took[i] = of(r).Seconds()
	}
	slices.Sort(took)
	return took[min(len(took)-1, len(took)*p/100)]
}
