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
	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/bench/verify"
	"atoll.dev/atoll/lab/fleet"
)

const (
	// bigGroup is the group of the few clusters that receive large objects.
	bigGroup    = 1
	bigClusters = 10
	bigBytes    = 1_000_000
	bigItems    = 5000
	// bigItemBytes is the size of each of many objects.
	bigItemBytes = 1000
	// tooBig is a size that the API accepts and no Revision can carry. The content cannot
	// be compressed.
	tooBig = 1_040_000
	// bigPlacement clusters receive one application. They check in, because one process
	// may not open as many files; the interval is shorter than the field's fifteen
	// minutes.
	bigPlacement = 50_000
	bigInterval  = 3 * time.Minute
	// No object may grow with the fleet: these bound pages of rows and summaries.
	largestSlice  = 200e3
	largestBundle = 20e3
)

// configMapSet is a Bundle of ConfigMaps.
type configMapSet struct {
	namespace string
	count     int
	// data is the data of each object, edited the data of the middle one if it differs.
	data, edited string
}

func (c configMapSet) bundleKey() string { return c.namespace + "/big" }

func (c configMapSet) middleIndex() int { return c.count / 2 }

// configMap returns a ConfigMap of the set and its path. data is text or bytes.
func (c configMapSet) configMap(i int, data any) (path string, body []byte) {
	name, field := fmt.Sprintf("big-%d", i), "data"
	if _, binary := data.([]byte); binary {
		field = "binaryData"
	}
	return "/api/v1/namespaces/" + c.namespace + "/configmaps/" + name, mustEncodeJSON(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", field: map[string]any{"key": data},
		"metadata": map[string]any{"name": name, "namespace": c.namespace, "labels": map[string]any{"big": "yes"}},
	})
}

func (c configMapSet) policyPath() string {
	return "/apis/atoll.dev/v1alpha1/namespaces/" + c.namespace + "/propagationpolicies/big"
}

func (c configMapSet) policyJSON() []byte {
	return mustEncodeJSON(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": "big", "namespace": c.namespace},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": map[string]any{"matchLabels": map[string]any{"big": "yes"}}}},
			"placement":         application{group: bigGroup}.placementSpec(),
			"rollout":           map[string]any{"type": "All"}, // an edit is one wave
		},
	})
}

func (c configMapSet) wantedApp() verify.WantedApp {
	e := application{namespace: c.namespace, name: "big", group: bigGroup}.wantedApp()
	e.Deployment, e.Items, e.Mark = "", c.count, 0
	for i := range c.count {
		data := c.data
		if i == c.middleIndex() && c.edited != "" {
			data = c.edited
		}
		_, body := c.configMap(i, data)
		e.Mark += fleet.ObjectsChecksum(body)
	}
	return e
}

// applyConfigMapSets applies a large template and an application of many objects. It returns those of
// them that are in all clusters.
func (s *testbed) applyConfigMapSets(ctx context.Context, b *bundleWatch, one, many *configMapSet) (placed []*configMapSet, err error) {
	for _, c := range []struct {
		*configMapSet
		name string
	}{{one, "template_of_1MB"}, {many, "application_of_many_objects"}} {
		there, err := s.deliverConfigMapSet(ctx, b, *c.configMapSet, c.name)
		if err != nil {
			return nil, err
		}
		if there {
			placed = append(placed, c.configMapSet)
		}
	}
	return placed, nil
}

// runLargeObjects propagates large things: an object, a Bundle, a placement.
func runLargeObjects(ctx context.Context, s *testbed) error {
	if err := s.startHubAndFleet(ctx, fleetSize{count: 2 * bigClusters, groups: 2}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	one := configMapSet{namespace: "large-template", count: 1, data: base64.StdEncoding.EncodeToString(s.randomBytes(bigBytes * 3 / 4))}
	many := configMapSet{namespace: "many-objects", count: s.atScale(bigItems, 50), data: base64.StdEncoding.EncodeToString(s.randomBytes(bigItemBytes * 3 / 4))}
	placed, err := s.applyConfigMapSets(ctx, b, &one, &many)
	if err != nil {
		return err
	}
	many.edited = "another value"
	if err := s.editOneConfigMap(ctx, b, many); err != nil {
		return err
	}
	if err := s.applyTooLargeObject(ctx); err != nil {
		return err
	}
	count := s.atScale(bigPlacement, 100) - 2*bigClusters
	every := max(20*time.Second, time.Duration(float64(bigInterval)*min(1, s.Scale)).Round(time.Second))
	crowd, err := s.launchAgents(fleetSize{count: count, groups: 1, prefix: "many", checkIn: every})
	if err != nil {
		return err
	}
	if err := s.awaitJoined(ctx, crowd); err != nil {
		return err
	}
	if err := s.checkLargestObjects(ctx, "before"); err != nil {
		return err
	}
	everywhere, err := s.placeOneAppEverywhere(ctx, b, every)
	if err != nil {
		return err
	}
	want := wantedApps(everywhere)
	for _, c := range placed {
		want = append(want, c.wantedApp())
	}
	if err := s.verifyFleetFor(ctx, every, want, false); err != nil {
		return err
	}
	return s.checkLargestObjects(ctx, "after")
}

// randomBytes returns data that cannot be compressed.
func (s *testbed) randomBytes(bytes int) []byte {
	raw := make([]byte, bytes)
	draw := rand.New(rand.NewPCG(uint64(s.Seed), uint64(bytes)))
	for i := range raw {
		raw[i] = byte(draw.Uint32())
	}
	return raw
}

// editOneConfigMap edits one object of the set: the new Revision shares all other parts with the
// previous one.
func (s *testbed) editOneConfigMap(ctx context.Context, b *bundleWatch, c configMapSet) error {
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	parts, err := s.etcd.CountKeys(ctx, revisionParts)
	if err != nil {
		return err
	}
	old := b.get(c.bundleKey()).status.Revision
	s.report.MarkNow("one of many edited")
	begin := time.Now()
	path, body := c.configMap(c.middleIndex(), c.edited)
	if err := s.apply(ctx, path, body); err != nil {
		return err
	}
	if err := b.waitUntil(ctx, c.bundleKey()+" is ready again", 5*time.Minute, func(by map[string]observedBundle) bool {
		return by[c.bundleKey()].isReadyAtNewRevision(bigClusters, old)
	}); err != nil {
		return err
	}
	s.report.AddTime("edit_of_one_of_many_to_ready", b.get(c.bundleKey()).readySince.Sub(begin))
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	s.reportCost("edit_of_one_of_many", before, after, measure.WriteCounts{"APPLY configmaps": 1})
	now, err := s.etcd.CountKeys(ctx, revisionParts)
	if err != nil {
		return err
	}
	s.report.AddCount("parts_of_many", float64(parts), "parts")
	s.report.CheckAtMost("parts that an edit of one of many objects writes", float64(now-parts), 1, "parts")
	return nil
}

const revisionParts = "/registry/engine.atoll.dev/revisionparts/"

// applyTooLargeObject applies an object that no Revision can carry. Admission refuses it if a
// policy places it. If a policy selects it later, the policy's status reports it.
func (s *testbed) applyTooLargeObject(ctx context.Context) error {
	c, noise := configMapSet{namespace: "too-large"}, s.randomBytes(tooBig)
	if err := s.makeNamespaces(ctx, []application{{namespace: c.namespace}}); err != nil {
		return err
	}
	path, body := c.configMap(0, noise)
	if err := s.apply(ctx, path, body); err != nil {
		return fmt.Errorf("an object without a policy: %w", err)
	}
	if err := s.apply(ctx, c.policyPath(), c.policyJSON()); err != nil {
		return err
	}
	said := ""
	err := pollUntil(ctx, "the policy shows the object that cannot be sent", 200*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
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
	s.report.AddCheck("a policy names the object that is too large to be sent", err == nil, "%s", said)
	if err != nil && ctx.Err() != nil {
		return err
	}
	path, body = c.configMap(1, noise)
	err = s.apply(ctx, path, body)
	s.report.AddCheck("an object that is placed and too large is refused with a reason", apierrors.IsInvalid(err), "%v", err)
	return nil
}

// deliverConfigMapSet applies the ConfigMaps and their policy, and waits until they are
// everywhere. A refusal by admission with a reason is fine too.
func (s *testbed) deliverConfigMapSet(ctx context.Context, b *bundleWatch, c configMapSet, name string) (there bool, err error) {
	if err := s.makeNamespaces(ctx, []application{{namespace: c.namespace}}); err != nil {
		return false, err
	}
	if err := s.apply(ctx, c.policyPath(), c.policyJSON()); err != nil {
		return false, err
	}
	before, err := s.readCost(ctx)
	if err != nil {
		return false, err
	}
	s.report.MarkNow(name)
	s.Progress.BeginStep(fmt.Sprintf("applying %d objects of %d bytes", c.count, len(c.data)), c.count)
	begin := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelUsers)
	var done atomic.Int64
	for i := range c.count {
		group.Go(func() error {
			path, body := c.configMap(i, c.data)
			err := s.apply(groupCtx, path, body)
			s.Progress.SetDone(int(done.Add(1)))
			return err
		})
	}
	err = group.Wait()
	if isRefusedForContent(err) {
		s.report.AddCheck(name+" works, or is refused with a reason", true, "refused: %v", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	applied := time.Now()
	s.report.AddTime(name+"_applied", applied.Sub(begin))
	s.Progress.BeginStep("all clusters have them", 0)
	key := c.bundleKey()
	err = b.waitUntil(ctx, key+" is ready", 10*time.Minute, func(by map[string]observedBundle) bool {
		return by[key].isReadyAtNewRevision(bigClusters, "") && int(by[key].status.Items) == c.count
	})
	s.report.AddCheck(name+" works, or is refused with a reason", err == nil, "%d items, ready in %s clusters, waits for %q",
		b.get(key).status.Items, b.get(key).status.Clusters.Summary, b.get(key).status.WaitsFor)
	if err != nil {
		return true, err
	}
	s.report.AddTime(name+"_applied_to_ready", b.get(key).readySince.Sub(applied))
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return true, err
	}
	s.reportCost(name, before, after, map[string]float64{"APPLY configmaps": float64(c.count)})
	return true, nil
}

// isRefusedForContent reports whether admission refused the request for its content. Other errors
// do not count: missing rights, a busy hub, a broken hub.
func isRefusedForContent(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || strings.TrimSpace(status.Status().Message) == "" {
		return false
	}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return true
	case apierrors.IsForbidden(err): // "NAME is forbidden: REASON"; errors of rights read "User … cannot …"
		_, why, said := strings.Cut(status.Status().Message, "forbidden: ")
		return said && why != "" && !(strings.HasPrefix(why, "User ") && strings.Contains(why, " cannot "))
	}
	return false
}

// placeOneAppEverywhere places one application onto all clusters.
func (s *testbed) placeOneAppEverywhere(ctx context.Context, b *bundleWatch, every time.Duration) ([]application, error) {
	if err := s.setRates(ctx, fleet.FaultRates{}); err != nil {
		return nil, err
	}
	everywhere := []application{{namespace: "everywhere", name: "everywhere", group: -1, image: "registry.example/app:1"}}
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	s.report.MarkNow("placed everywhere")
	begin := time.Now()
	if err := s.applyAll(ctx, "placing one application everywhere", everywhere); err != nil {
		return nil, err
	}
	err = s.awaitReady(ctx, b, everywhere, 3*every+5*time.Minute, nil)
	status := b.get(everywhere[0].bundleKey()).status
	s.report.AddCheck("a placement onto all clusters works", err == nil, "%s clusters, waits for %q", status.Clusters.Summary, status.WaitsFor)
	if err != nil {
		return nil, err
	}
	s.report.AddTime("placed_everywhere", time.Since(begin))
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	s.reportCost("placed_everywhere", before, after, expectedUserWrites(1))
	return everywhere, nil
}

// checkLargestObjects checks for objects that grow with the fleet.
func (s *testbed) checkLargestObjects(ctx context.Context, when string) error {
	for _, kind := range []struct {
		name, prefix string
		most         float64
	}{
		{"slice", "/registry/engine.atoll.dev/targetslices/", largestSlice},
		{"bundle", "/registry/atoll.dev/bundles/", largestBundle},
		{"policy", "/registry/atoll.dev/propagationpolicies/", largestBundle},
		{"cluster", "/registry/atoll.dev/clusters/", largestBundle},
		{"object", "/registry/", 3e6}, // the object that is too large to be sent
	} {
		key, size, err := s.etcd.LargestValue(ctx, kind.prefix)
		if err != nil {
			return err
		}
		s.report.AddCount("largest_"+kind.name+"_"+when, size, "bytes")
		s.report.AddCheck("no "+kind.name+" is too large ("+when+" it is placed everywhere)", size > 0 && size <= kind.most, "the largest, %s, has %.0f bytes; at most %.0f", key, size, kind.most)
	}
	return nil
}
