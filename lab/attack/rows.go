package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/lab"
)

// rowAttacks need a row of a Bundle.
var rowAttacks = []Attack{
	{Name: "flapping", Caller: Agent, Summary: "report another state of one row with each frame", run: sendFlappingStates},
	{Name: "generations-ahead", Caller: Agent, Summary: "report a higher generation of one row with each frame", run: sendGenerationsAhead},
	{Name: "absurd-times", Caller: Agent, Summary: "report times of the year 292277026596 and of the year 9000", run: sendAbsurdTimes},
	{Name: "bad-states", Caller: Agent, Summary: "report states, reasons and keys that do not exist", run: sendBadStates},
}

// One agent with one row may cause maxBurst writes at once, and maxRate a second after that.
const (
	maxBurst = 80
	maxRate  = 5
	// lateEvents is how long events of writes may take to come; what is written in it counts.
	lateEvents = time.Second
)

var (
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	podResource     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	clusterPolicies = schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "clusterpropagationpolicies"}
	overridePolicy  = schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "overridepolicies"}
)

// applyObject creates or updates an object by JSON, in which $NAME is the attacker's name.
func (t *Target) applyObject(ctx context.Context, resource schema.GroupVersionResource, text string) error {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "$NAME", t.name)), &o.Object); err != nil {
		return fmt.Errorf("the attack's own object: %w", err)
	}
	_, err := t.dynamic.Resource(resource).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: attacker, Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", resource.Resource, o.GetName(), err)
	}
	return nil
}

// placeWorkloadOnAttacker places a Deployment and the ConfigMaps of a namespace on the attacker's Cluster.
func (t *Target) placeWorkloadOnAttacker(ctx context.Context) error {
	_, cluster, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return err
	}
	for _, o := range []struct {
		resource schema.GroupVersionResource
		text     string
	}{
		{namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$NAME"}}`},
		{deployments, deploymentText(t.name)},
		{clusterPolicies, `{"apiVersion":"atoll.dev/v1alpha1","kind":"ClusterPropagationPolicy","metadata":{"name":"$NAME"},"spec":{
			"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment","namespace":"$NAME","name":"$NAME"},{"apiVersion":"v1","kind":"ConfigMap","namespace":"$NAME"}],
			"placement":{"clusterAffinity":{"clusterNames":["` + cluster + `"]}}}}`},
	} {
		if err := t.applyObject(ctx, o.resource, o.text); err != nil {
			return err
		}
	}
	return nil
}

// deploymentText is a Deployment in the attacker's namespace.
func deploymentText(name string) string {
	return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `","namespace":"$NAME"},"spec":{"replicas":2,
		"selector":{"matchLabels":{"app":"` + name + `"}},"template":{"metadata":{"labels":{"app":"` + name + `"}},
		"spec":{"containers":[{"name":"c","image":"example.com/` + name + `:1"}]}}}}`
}

// sendReports reports statuses of one row of the attacker's Cluster for that time, and counts the
// writes that the hub made of them.
func (t *Target) sendReports(ctx context.Context, lasts time.Duration, next func(i int, s *atoll.RowStatus)) (string, error) {
	if err := t.placeWorkloadOnAttacker(ctx); err != nil {
		return "", err
	}
	a, err := t.connectAgent(ctx)
	if err != nil {
		return "", err
	}
	defer a.closeSession()
	if err := a.sendFrame(inventoryFrame(honestInventory())); err != nil {
		return "", err
	}
	order, err := a.waitForOrder(ctx)
	if err != nil {
		return "", err
	}
	counter, err := t.startCountingWrites(ctx)
	if err != nil {
		return "", err
	}
	defer counter.stopCounting()
	begin, sent := time.Now(), 0
	for ; time.Since(begin) < lasts; sent++ {
		s := atoll.RowStatus{Generation: order.Generation, Content: order.Content, State: atoll.RowReady, Applied: true, Since: time.Now().Unix(), Total: 1}
		next(sent, &s)
		body, err := json.Marshal(s)
		if err != nil {
			return "", err
		}
		if a.sendFrame(&pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: order.Bundle, Seq: int64(sent + 1), Status: body}}}) != nil {
			break
		}
	}
	took := time.Since(begin).Seconds()
	_ = lab.PauseFor(ctx, lateEvents)
	written := counter.stopCounting()
	answer := fmt.Sprintf("%d reports sent, %.1f writes a second", sent, written/took)
	select {
	case <-a.ended:
		answer += fmt.Sprintf(", the session ended: %v", a.why)
	default:
	}
	if most := maxBurst + maxRate*(took+lateEvents.Seconds()); written > most {
		return answer, fmt.Errorf("one agent caused %.0f writes in %.0f s; %.0f are the most", written, took, most)
	}
	return answer, nil
}

func sendFlappingStates(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	states := []atoll.RowState{atoll.RowReady, atoll.RowDegraded, atoll.RowProgressing, atoll.RowFailed}
	return t.sendReports(ctx, lasts, func(i int, s *atoll.RowStatus) {
		s.State, s.Message = states[i%len(states)], fmt.Sprint(i)
	})
}

func sendGenerationsAhead(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendReports(ctx, lasts, func(i int, s *atoll.RowStatus) { s.Generation += int64(1 + i) })
}

func sendAbsurdTimes(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	times := []int64{math.MaxInt64, 221_845_392_000, -1, 1}
	item := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: t.name, Name: t.name}
	answer, err := t.sendReports(ctx, lasts, func(i int, s *atoll.RowStatus) {
		s.State, s.Message, s.Since = atoll.RowDegraded, "m", times[i%len(times)]
		s.Items = []atoll.ItemStatus{{Key: item, Since: s.Since}}
	})
	if err != nil {
		return answer, err
	}
	if _, err := t.dynamic.Resource(deployments).Namespace(t.name).Get(ctx, t.name, metav1.GetOptions{}); err != nil {
		return answer, fmt.Errorf("the template of the row cannot be read any more: %w", err)
	}
	return answer, t.checkClusterWritable(ctx)
}

func sendBadStates(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return t.sendReports(ctx, lasts, func(i int, s *atoll.RowStatus) {
		s.State, s.Reason, s.Message = atoll.RowState(fmt.Sprint("\x1b[31m", i)), "Forged", "a\r\nb"
		s.Total, s.Ready = -1, math.MaxInt32
	})
}
