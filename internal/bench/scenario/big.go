package scenario

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/bench/truth"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	// bigGroup is the group of the few clusters that get what is large.
	bigGroup    = 1
	bigClusters = 10
	bigBytes    = 1_000_000
	bigItems    = 5000
	// bigPlacement clusters get one application.
	bigPlacement = 50_000
	// No object may grow with the fleet: these are what pages of rows and summaries
	// may have at most.
	largestSlice  = 200e3
	largestBundle = 20e3
)

// collection is a Bundle of ConfigMaps.
type collection struct {
	namespace string
	count     int
	// data of each.
	data string
}

func (c collection) policy() []byte {
	return encode(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": "big", "namespace": c.namespace},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": map[string]any{"matchLabels": map[string]any{"big": "yes"}}}},
			"placement":         app{group: bigGroup}.placement(),
		},
	})
}

func (c collection) expectation() truth.App {
	e := app{namespace: c.namespace, name: "big", group: bigGroup}.expectation()
	e.Deployment, e.Items = "", c.count
	return e
}

// big brings large things: an object, a Bundle, a placement.
func big(ctx context.Context, s *stage) error {
	if err := s.open(ctx, crowd{count: 2 * bigClusters, groups: 2}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	noise := make([]byte, bigBytes*3/4)
	draw := rand.New(rand.NewPCG(uint64(s.Seed), 0))
	for i := range noise {
		noise[i] = byte(draw.Uint32()) // what cannot be compressed
	}
	one := collection{namespace: "large-template", count: 1, data: base64.StdEncoding.EncodeToString(noise)}
	many := collection{namespace: "many-objects", count: s.scaled(bigItems, 50), data: "value"}
	var want []truth.App
	for _, c := range []struct {
		collection
		name string
	}{{one, "template_of_1MB"}, {many, "application_of_many_objects"}} {
		there, err := s.applyCollection(ctx, b, c.collection, c.name)
		if err != nil {
			return err
		}
		if there {
			want = append(want, c.expectation())
		}
	}
	count := s.scaled(bigPlacement, 100) - 2*bigClusters
	every := s.interval()
	crowd, err := s.launchAgents(crowd{count: count, groups: 1, prefix: "many", checkIn: every})
	if err != nil {
		return err
	}
	if err := s.awaitJoined(ctx, crowd); err != nil {
		return err
	}
	everywhere, err := s.placeEverywhere(ctx, b, every)
	if err != nil {
		return err
	}
	if err := s.tellTruthFor(ctx, every, slices.Concat(want, expectations(everywhere)), false); err != nil {
		return err
	}
	return s.noteLargest(ctx)
}

// applyCollection applies the ConfigMaps and their policy, and waits until they are
// everywhere. That admission refuses one with a reason is fine too.
func (s *stage) applyCollection(ctx context.Context, b *bundles, c collection, name string) (there bool, err error) {
	if err := s.makeNamespaces(ctx, []app{{namespace: c.namespace}}); err != nil {
		return false, err
	}
	if err := s.apply(ctx, "/apis/atoll.dev/v1alpha1/namespaces/"+c.namespace+"/propagationpolicies/big", c.policy()); err != nil {
		return false, err
	}
	before, err := s.read(ctx)
	if err != nil {
		return false, err
	}
	s.report.Mark(name)
	s.Progress.Step(fmt.Sprintf("applying %d objects of %d bytes", c.count, len(c.data)), c.count)
	begin := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(users)
	var done atomic.Int64
	for i := range c.count {
		group.Go(func() error {
			key := fmt.Sprintf("big-%d", i)
			err := s.apply(groupCtx, "/api/v1/namespaces/"+c.namespace+"/configmaps/"+key, encode(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"key": c.data},
				"metadata": map[string]any{"name": key, "namespace": c.namespace, "labels": map[string]any{"big": "yes"}},
			}))
			s.Progress.Reach(int(done.Add(1)))
			return err
		})
	}
	err = group.Wait()
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		s.report.Check(name+" works, or is refused with a reason", true, "refused: %v", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	applied := time.Now()
	s.report.Time(name+"_applied", applied.Sub(begin))
	s.Progress.Step("all clusters have them", 0)
	key := c.namespace + "/big"
	err = b.await(ctx, key+" is ready", 10*time.Minute, func(by map[string]seen) bool {
		return by[key].isReady(bigClusters, "") && int(by[key].status.Items) == c.count
	})
	s.report.Check(name+" works, or is refused with a reason", err == nil, "%d items, ready in %s clusters, waits for %q",
		b.get(key).status.Items, b.get(key).status.Clusters.Summary, b.get(key).status.WaitsFor)
	if err != nil {
		return true, err
	}
	s.report.Time(name+"_applied_to_ready", b.get(key).ready.Sub(applied))
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return true, err
	}
	s.cost(name, before, after, map[string]float64{"APPLY configmaps": float64(c.count)})
	return true, nil
}

// placeEverywhere places one application onto all clusters.
func (s *stage) placeEverywhere(ctx context.Context, b *bundles, every time.Duration) ([]app, error) {
	if err := s.rates(ctx, fleet.Rates{}); err != nil {
		return nil, err
	}
	everywhere := []app{{namespace: "everywhere", name: "everywhere", group: -1, image: "registry.example/app:1"}}
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	s.report.Mark("placed everywhere")
	begin := time.Now()
	if err := s.applyAll(ctx, "placing one application everywhere", everywhere); err != nil {
		return nil, err
	}
	err = s.awaitReady(ctx, b, everywhere, 3*every+5*time.Minute, nil)
	status := b.get(everywhere[0].key()).status
	s.report.Check("a placement onto all clusters works", err == nil, "%s clusters, waits for %q", status.Clusters.Summary, status.WaitsFor)
	if err != nil {
		return nil, err
	}
	s.report.Time("placed_everywhere", time.Since(begin))
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	s.cost("placed_everywhere", before, after, ownWrites(1))
	return everywhere, nil
}

// noteLargest looks for objects that grow with the fleet.
func (s *stage) noteLargest(ctx context.Context) error {
	for _, kind := range []struct {
		name, prefix string
		most         float64
	}{
		{"slice", "/registry/engine.atoll.dev/targetslices/", largestSlice},
		{"bundle", "/registry/atoll.dev/bundles/", largestBundle},
		{"cluster", "/registry/atoll.dev/clusters/", largestBundle},
		{"object", "/registry/", 1.5e6},
	} {
		key, size, err := s.etcd.Largest(ctx, kind.prefix)
		if err != nil {
			return err
		}
		s.report.Count("largest_"+kind.name, size, "bytes")
		s.report.Check("no "+kind.name+" is too large", size > 0 && size <= kind.most, "the largest, %s, has %.0f bytes; at most %.0f", key, size, kind.most)
	}
	return nil
}
