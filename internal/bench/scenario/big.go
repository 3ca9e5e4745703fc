package scenario

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/bench/truth"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	// bigGroup is the group of the few clusters that get what is large.
	bigGroup    = 1
	bigClusters = 10
	bigBytes    = 1_000_000
	bigItems    = 5000
	// bigItemBytes of each of many objects.
	bigItemBytes = 1000
	// tooBig is what no Revision can carry, and the API takes; it cannot be compressed.
	tooBig = 1_040_000
	// bigPlacement clusters get one application. They check in, since one process has
	// fewer open files than that; the fifteen minutes of the field are made shorter.
	bigPlacement = 50_000
	bigInterval  = 3 * time.Minute
	// No object may grow with the fleet: these are what pages of rows and summaries
	// may have at most.
	largestSlice  = 200e3
	largestBundle = 20e3
)

// collection is a Bundle of ConfigMaps.
type collection struct {
	namespace string
	count     int
	// data of each, and of the one in the middle if that is another.
	data, edited string
}

func (c collection) key() string { return c.namespace + "/big" }

func (c collection) middle() int { return c.count / 2 }

// configMap of the collection, and its path. Data is text, or bytes.
func (c collection) configMap(i int, data any) (path string, body []byte) {
	name, field := fmt.Sprintf("big-%d", i), "data"
	if _, binary := data.([]byte); binary {
		field = "binaryData"
	}
	return "/api/v1/namespaces/" + c.namespace + "/configmaps/" + name, encode(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", field: map[string]any{"key": data},
		"metadata": map[string]any{"name": name, "namespace": c.namespace, "labels": map[string]any{"big": "yes"}},
	})
}

func (c collection) policyPath() string {
	return "/apis/atoll.dev/v1alpha1/namespaces/" + c.namespace + "/propagationpolicies/big"
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
	e.Deployment, e.Items, e.Mark = "", c.count, 0
	for i := range c.count {
		data := c.data
		if i == c.middle() && c.edited != "" {
			data = c.edited
		}
		_, body := c.configMap(i, data)
		e.Mark += fleet.MarkOf(body)
	}
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
	one := collection{namespace: "large-template", count: 1, data: base64.StdEncoding.EncodeToString(s.noise(bigBytes * 3 / 4))}
	many := collection{namespace: "many-objects", count: s.scaled(bigItems, 50), data: base64.StdEncoding.EncodeToString(s.noise(bigItemBytes * 3 / 4))}
	var placed []*collection
	for _, c := range []struct {
		*collection
		name string
	}{{&one, "template_of_1MB"}, {&many, "application_of_many_objects"}} {
		there, err := s.applyCollection(ctx, b, *c.collection, c.name)
		if err != nil {
			return err
		}
		if there {
			placed = append(placed, c.collection)
		}
	}
	many.edited = "another value"
	if err := s.editOne(ctx, b, many); err != nil {
		return err
	}
	if err := s.applyTooBig(ctx); err != nil {
		return err
	}
	count := s.scaled(bigPlacement, 100) - 2*bigClusters
	every := max(20*time.Second, time.Duration(float64(bigInterval)*min(1, s.Scale)).Round(time.Second))
	crowd, err := s.launchAgents(crowd{count: count, groups: 1, prefix: "many", checkIn: every})
	if err != nil {
		return err
	}
	if err := s.awaitJoined(ctx, crowd); err != nil {
		return err
	}
	if err := s.noteLargest(ctx, "before"); err != nil {
		return err
	}
	everywhere, err := s.placeEverywhere(ctx, b, every)
	if err != nil {
		return err
	}
	want := expectations(everywhere)
	for _, c := range placed {
		want = append(want, c.expectation())
	}
	if err := s.tellTruthFor(ctx, every, want, false); err != nil {
		return err
	}
	return s.noteLargest(ctx, "after")
}

// noise is what cannot be compressed.
func (s *stage) noise(bytes int) []byte {
	raw := make([]byte, bytes)
	draw := rand.New(rand.NewPCG(uint64(s.Seed), uint64(bytes)))
	for i := range raw {
		raw[i] = byte(draw.Uint32())
	}
	return raw
}

// editOne edits one object of the collection: its Revision shares all parts but one with
// the one before.
func (s *stage) editOne(ctx context.Context, b *bundles, c collection) error {
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	parts, err := s.etcd.Keys(ctx, revisionParts)
	if err != nil {
		return err
	}
	old := b.get(c.key()).status.Revision
	s.report.Mark("one of many edited")
	begin := time.Now()
	path, body := c.configMap(c.middle(), c.edited)
	if err := s.apply(ctx, path, body); err != nil {
		return err
	}
	if err := b.await(ctx, c.key()+" is ready again", 5*time.Minute, func(by map[string]seen) bool {
		return by[c.key()].isReady(bigClusters, old)
	}); err != nil {
		return err
	}
	s.report.Time("edit_of_one_of_many_to_ready", b.get(c.key()).ready.Sub(begin))
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	s.cost("edit_of_one_of_many", before, after, measure.Writes{"APPLY configmaps": 1})
	now, err := s.etcd.Keys(ctx, revisionParts)
	if err != nil {
		return err
	}
	s.report.Count("parts_of_many", float64(parts), "parts")
	s.report.AtMost("parts that an edit of one of many objects writes", float64(now-parts), 1, "parts")
	return nil
}

const revisionParts = "/registry/engine.atoll.dev/revisionparts/"

// applyTooBig applies an object that no Revision can carry: it is refused where it is
// placed, and where a policy comes to select it later, that says so.
func (s *stage) applyTooBig(ctx context.Context) error {
	c, noise := collection{namespace: "too-large"}, s.noise(tooBig)
	if err := s.makeNamespaces(ctx, []app{{namespace: c.namespace}}); err != nil {
		return err
	}
	path, body := c.configMap(0, noise)
	if err := s.apply(ctx, path, body); err != nil {
		return fmt.Errorf("an object that nobody places: %w", err)
	}
	if err := s.apply(ctx, c.policyPath(), c.policy()); err != nil {
		return err
	}
	said := ""
	err := until(ctx, "the policy says what cannot be sent", 200*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
		raw, err := s.kube.CoreV1().RESTClient().Get().AbsPath(c.policyPath()).Do(ctx).Raw()
		if err != nil {
			return false, err
		}
		var p v1alpha1.PropagationPolicy
		if err := json.Unmarshal(raw, &p); err != nil {
			return false, err
		}
		if applied := meta.FindStatusCondition(p.Status.Conditions, "Applied"); applied != nil && applied.Reason == "CannotSend" {
			said = applied.Message
		}
		return said != "", nil
	})
	s.report.Check("a policy says which object is too large to be sent", err == nil, "%s", said)
	if err != nil && ctx.Err() != nil {
		return err
	}
	path, body = c.configMap(1, noise)
	err = s.apply(ctx, path, body)
	s.report.Check("an object that is placed and too large is refused with a reason", apierrors.IsInvalid(err), "%v", err)
	return nil
}

// applyCollection applies the ConfigMaps and their policy, and waits until they are
// everywhere. That admission refuses one with a reason is fine too.
func (s *stage) applyCollection(ctx context.Context, b *bundles, c collection, name string) (there bool, err error) {
	if err := s.makeNamespaces(ctx, []app{{namespace: c.namespace}}); err != nil {
		return false, err
	}
	if err := s.apply(ctx, c.policyPath(), c.policy()); err != nil {
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
			path, body := c.configMap(i, c.data)
			err := s.apply(groupCtx, path, body)
			s.Progress.Reach(int(done.Add(1)))
			return err
		})
	}
	err = group.Wait()
	if refused(err) {
		s.report.Check(name+" works, or is refused with a reason", true, "refused: %v", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	applied := time.Now()
	s.report.Time(name+"_applied", applied.Sub(begin))
	s.Progress.Step("all clusters have them", 0)
	key := c.key()
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

// refused tells whether admission refused a request for what it asks, and says why. Any
// other error is no such answer: that somebody may not, that the hub is busy, that it is
// broken.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || strings.TrimSpace(status.Status().Message) == "" {
		return false
	}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return true
	case apierrors.IsForbidden(err): // "NAME is forbidden: WHY", and of rights "User … cannot …"
		_, why, said := strings.Cut(status.Status().Message, "forbidden: ")
		return said && why != "" && !(strings.HasPrefix(why, "User ") && strings.Contains(why, " cannot "))
	}
	return false
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
func (s *stage) noteLargest(ctx context.Context, when string) error {
	for _, kind := range []struct {
		name, prefix string
		most         float64
	}{
		{"slice", "/registry/engine.atoll.dev/targetslices/", largestSlice},
		{"bundle", "/registry/atoll.dev/bundles/", largestBundle},
		{"policy", "/registry/atoll.dev/propagationpolicies/", largestBundle},
		{"cluster", "/registry/atoll.dev/clusters/", largestBundle},
		{"object", "/registry/", 3e6}, // the one that is too large to be sent
	} {
		key, size, err := s.etcd.Largest(ctx, kind.prefix)
		if err != nil {
			return err
		}
		s.report.Count("largest_"+kind.name+"_"+when, size, "bytes")
		s.report.Check("no "+kind.name+" is too large ("+when+" it is placed everywhere)", size > 0 && size <= kind.most, "the largest, %s, has %.0f bytes; at most %.0f", key, size, kind.most)
	}
	return nil
}
