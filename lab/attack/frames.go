package attack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/lab"
)

// frameAttacks need a certificate, and no row.
var frameAttacks = []Attack{
	{Name: "api-sets", Caller: Agent, Summary: "report another set of 4,000 kinds with every frame", run: sendAPISets},
	{Name: "huge-inventory", Caller: Agent, Summary: "report a version, messages and properties of 1 MB", run: sendHugeInventory},
	{Name: "forged-texts", Caller: Agent, Summary: "report terminal sequences, line breaks and fields for people to read", run: sendForgedTexts},
	{Name: "huge-report", Caller: Agent, Summary: "report statuses of 8 MB, 16 KiB and 1 MB of nested JSON", run: sendHugeReports},
	{Name: "stored-flood", Caller: Agent, Summary: "acknowledge a million bundles that the hub never ordered", run: sendStoredFlood},
	{Name: "digest-flood", Caller: Agent, Summary: "answer no question with digests of many ranges", run: sendDigestFlood},
	{Name: "need-flood", Caller: Agent, Summary: "request a million objects of unknown bundles", run: sendNeedFlood},
	{Name: "tombstone-flood", Caller: Agent, Summary: "report a million removals that the hub never recalled", run: sendTombstoneFlood},
	{Name: "hello-churn", Caller: Agent, Summary: "open sessions with other digests as fast as the hub answers", run: churnSessions},
	{Name: "garbage-frames", Caller: Agent, Summary: "send unknown fields and empty frames", run: sendGarbageFrames},
}

var clusterResource = schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "clusters"}

func sendAPISets(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	sets := schema.GroupVersionResource{Group: "engine.atoll.dev", Version: "v1alpha1", Resource: "apisets"}
	before, err := t.countObjects(ctx, sets)
	if err != nil {
		return "", err
	}
	sent, err := t.sendFramesReconnecting(ctx, lasts, func(i int) *pb.FromAgent {
		apis := make([]string, 4000)
		for n := range apis {
			apis[n] = fmt.Sprintf("group%d.example.com/v1/Kind%d", i, n)
		}
		slices.Sort(apis)
		inventory := honestInventory()
		inventory.Apis, inventory.ApisHash = apis, session.APIsHash(apis)
		return inventoryFrame(inventory)
	})
	if err != nil {
		return sent.String(), err
	}
	after, err := t.countObjects(ctx, sets)
	if err == nil && after-before > 10 {
		err = fmt.Errorf("the hub stored %d sets of kinds of one agent", after-before)
	}
	return fmt.Sprintf("%s; %d sets stored", sent, after-before), err
}

// countObjects counts the objects of a cluster-scoped resource.
func (t *Target) countObjects(ctx context.Context, resource schema.GroupVersionResource) (int, error) {
	list, err := t.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", resource.Resource, err)
	}
	return len(list.Items), nil
}

func honestInventory() *pb.Inventory {
	return &pb.Inventory{KubernetesVersion: "v1.36.3", AgentVersion: atoll.Version, NodesTotal: 3, NodesReady: 3, MemberReady: true}
}

func inventoryFrame(i *pb.Inventory) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: i}}
}

func sendHugeInventory(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	text := strings.Repeat("x", 1<<20-1<<10)
	answer, err := t.sendForbidden(ctx, lasts, func(i int) *pb.FromAgent {
		inventory := honestInventory()
		switch i % 3 {
		case 0:
			inventory.KubernetesVersion = text
		case 1:
			inventory.MemberMessage, inventory.MemberReady = text, false
		case 2:
			inventory.Properties = map[string]string{"a": text}
		}
		return inventoryFrame(inventory)
	})
	if err != nil {
		return answer, err
	}
	return answer, t.checkClusterWritable(ctx)
}

// checkClusterWritable labels the attacker's Cluster, as an administrator must be able to.
func (t *Target) checkClusterWritable(ctx context.Context) error {
	_, name, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return err
	}
	_, err = t.dynamic.Resource(clusterResource).Patch(ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"attacked":"true"}}}`), metav1.PatchOptions{FieldManager: attacker})
	if err != nil {
		return fmt.Errorf("an administrator cannot write the Cluster of the attacker any more: %w", err)
	}
	return nil
}

func sendForgedTexts(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	const forged = "\x1b[2J\x1b]0;owned\x07ok\r\nmember1   Ready   \u202edaer\u202c"
	answer, err := t.sendForbidden(ctx, lasts, func(i int) *pb.FromAgent {
		inventory := honestInventory()
		inventory.MemberReady, inventory.MemberMessage = false, fmt.Sprint(forged, i)
		if i%2 == 1 {
			inventory.KubernetesVersion = forged
		}
		return inventoryFrame(inventory)
	})
	if err != nil {
		return answer, err
	}
	_, name, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return answer, err
	}
	cluster, err := t.readCluster(ctx, name)
	if err != nil {
		return answer, err
	}
	for _, c := range cluster.Status.Conditions {
		if phrase.EscapeLine(c.Message) != c.Message {
			return answer, fmt.Errorf("the condition %s of the Cluster has control characters: %q", c.Type, c.Message)
		}
	}
	return answer, nil
}

// readCluster returns a Cluster.
func (t *Target) readCluster(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	u, err := t.dynamic.Resource(clusterResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the Cluster %s: %w", name, err)
	}
	var out v1alpha1.Cluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &out); err != nil {
		return nil, fmt.Errorf("the Cluster %s: %w", name, err)
	}
	return &out, nil
}

// conditionTimeout is how long the hub may take until a Cluster shows a condition. A Cluster that
// changes often is written every 10 seconds.
const conditionTimeout = 30 * time.Second

// waitForMisbehaving waits until the attacker's Cluster has the condition Misbehaving.
func (t *Target) waitForMisbehaving(ctx context.Context) error {
	_, name, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return err
	}
	return t.waitForCondition(ctx, name, v1alpha1.ClusterMisbehaving, func(c *metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
}

// waitForCondition waits until a condition of a Cluster fits.
func (t *Target) waitForCondition(ctx context.Context, cluster, kind string, fits func(*metav1.Condition) bool) error {
	for end := time.Now().Add(conditionTimeout); ; {
		read, err := t.readCluster(ctx, cluster)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(read.Status.Conditions, kind)
		if c != nil && fits(c) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the condition %s of the Cluster %s is %+v after %s", kind, cluster, c, conditionTimeout)
		}
		_ = lab.PauseFor(ctx, 100*time.Millisecond)
	}
}

func sendHugeReports(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	bodies := [][]byte{
		[]byte(`{"m":"` + strings.Repeat("x", 8<<20) + `"}`),
		[]byte(`{"i":` + strings.Repeat("[", 16<<10) + strings.Repeat("]", 16<<10) + `}`),
		[]byte(`{"x":[` + strings.Repeat(`"a",`, 200_000) + `"a"]}`),
	}
	return t.sendForbidden(ctx, lasts, func(i int) *pb.FromAgent {
		return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: "b", Seq: int64(i + 1), Status: bodies[i%len(bodies)]}}}
	})
}

func sendStoredFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendLegalFrames(ctx, lasts, func(i int) *pb.FromAgent {
		return &pb.FromAgent{Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: fmt.Sprintf("%0120d", i), Generation: 1, Content: "c"}}}
	})
}

func sendDigestFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendLegalFrames(ctx, lasts, func(i int) *pb.FromAgent {
		d := &pb.Digest{}
		for n := range 16 {
			r := &pb.Range{Prefix: fmt.Sprintf("%x", n)}
			for e := range 50 {
				r.Entries = append(r.Entries, &pb.Entry{Bundle: fmt.Sprintf("%x%0100d", n, i*50+e), Generation: 1, Content: "c", Status: "s"})
			}
			d.Ranges = append(d.Ranges, r)
		}
		return &pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: d}}
	})
}

func sendNeedFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendLegalFrames(ctx, lasts, func(i int) *pb.FromAgent {
		hashes := make([]string, 5000)
		for n := range hashes {
			hashes[n] = fmt.Sprintf("%064d", i*len(hashes)+n)
		}
		return &pb.FromAgent{Frame: &pb.FromAgent_Need{Need: &pb.Need{Bundle: fmt.Sprint("b", i), Generation: 1, Hashes: hashes}}}
	})
}

func sendTombstoneFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendLegalFrames(ctx, lasts, func(i int) *pb.FromAgent {
		r := &pb.Remembered{}
		for n := range 400 {
			r.Tombstones = append(r.Tombstones, &pb.RememberedTombstone{
				Bundle: fmt.Sprintf("%0120d", i*400+n), Generation: 1, Tombstone: []byte(`{}`), At: 1,
			})
		}
		return &pb.FromAgent{Frame: &pb.FromAgent_Remembered{Remembered: r}}
	})
}

func churnSessions(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return repeatCalls(ctx, lasts, 8, func(ctx context.Context) error {
		a, err := t.connectAgent(ctx)
		if err != nil {
			return err
		}
		a.closeSession()
		return nil
	}).String(), nil
}

func sendGarbageFrames(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendForbidden(ctx, lasts, func(i int) *pb.FromAgent {
		f := &pb.FromAgent{}
		if i%2 == 0 {
			f.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x3e, 0x80, 0x80, 0x20}, make([]byte, 512<<10)...))
		}
		return f
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
