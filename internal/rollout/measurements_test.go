package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

func newQueryGate(count, limit int32) *v1alpha1.RolloutGate {
	return &v1alpha1.RolloutGate{Name: "errors", Prometheus: &v1alpha1.PrometheusGate{
		Server: "https://prometheus.example/base", Query: "errors", SuccessCondition: "result < 0.5", Count: count, FailureLimit: limit,
	}}
}

// A result is a success, a failure, or no data, which an error of the condition is.
func TestJudgeResult(t *testing.T) {
	for condition, want := range map[string]string{
		"result < 0.5":        "success 0.25",
		"result > 0.5":        "failure 0.25",
		"1 / int(result) > 0": "no data successCondition gives an error for 0.25: division by zero",
		"result <":            "no data successCondition does not compile",
	} {
		g := newQueryGate(1, 0).Prometheus
		g.SuccessCondition = condition
		o := JudgeResult(g, 0.25)
		kinds := map[OutcomeKind]string{OutcomeNoData: "no data", OutcomeSuccess: "success", OutcomeFailure: "failure"}
		if got := kinds[o.Kind] + " " + o.Text; got != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
}

// While no data comes, measurements become rarer, and a value ends that.
func TestNextMeasurement(t *testing.T) {
	g, now := newQueryGate(5, 0), time.Unix(1_000_000, 0)
	g.Prometheus.Interval = &metav1.Duration{Duration: 20 * time.Second}
	var got []string
	tally := Tally{}
	for range 7 {
		tally = tally.AddOutcome(g, Outcome{OutcomeNoData, "no answer"}, now)
		got = append(got, tally.NextMeasurement(g).String())
	}
	tally = tally.AddOutcome(g, Outcome{OutcomeSuccess, "0"}, now)
	got = append(got, tally.NextMeasurement(g).String())
	if want := "20s 40s 1m20s 2m40s 5m0s 5m0s 5m0s 20s"; strings.Join(got, " ") != want {
		t.Errorf("the times are %s, want %s", strings.Join(got, " "), want)
	}
	g.Prometheus.Interval.Duration = time.Hour
	tally = Tally{}.AddOutcome(g, Outcome{OutcomeNoData, "no answer"}, now).AddOutcome(g, Outcome{OutcomeNoData, "no answer"}, now)
	if d := tally.NextMeasurement(g); d != time.Hour {
		t.Errorf("the next measurement comes after %s, before its interval", d)
	}
}

// A server that answers now and then, and a long row of successes, change what is stored rarely. A failure and a verdict change it at once.
func TestValueOfATallyChangesSeldom(t *testing.T) {
	g, now := newQueryGate(50, 2), time.Unix(1_000_000, 0)
	tally, changes := Tally{}, 0
	add := func(kind OutcomeKind, text string) {
		was := tally
		tally = tally.AddOutcome(g, Outcome{kind, text}, now)
		if !tally.IsSameVerdict(&was, g, now) {
			changes++
		}
		now = now.Add(10 * time.Second)
	}
	for range 60 {
		add(OutcomeNoData, "no series")
		add(OutcomeSuccess, "0.1")
		add(OutcomeNoData, "no answer")
	}
	if changes < 5 || changes > 13 { // at most two in five minutes
		t.Errorf("%d changes in half an hour", changes)
	}
	for range 49 {
		add(OutcomeSuccess, "0.1")
	}
	now, changes = now.Add(time.Hour), 0
	add(OutcomeFailure, "0.7")
	if changes != 1 || !strings.HasPrefix(tally.Value, "0.7 is no success") {
		t.Errorf("a failure changes %d times to %s", changes, tally.Value)
	}
	for range 50 {
		add(OutcomeSuccess, "0.1")
	}
	held := tally.Value
	if !strings.Contains(held, "50 measurements in a row succeeded") {
		t.Errorf("the value is %s", held)
	}
	for range 50 {
		add(OutcomeSuccess, "0.2")
	}
	if tally.Value != held {
		t.Errorf("the value of a gate that holds changes to %s", tally.Value)
	}
	add(OutcomeFailure, "0.8")
	add(OutcomeFailure, "0.9")
	if !tally.IsOver(g) || !strings.HasPrefix(tally.Value, "0.9 is no success") {
		t.Errorf("the gate is not over: %s", tally.Value)
	}
	add(OutcomeSuccess, "0")
	if terms, _ := measurementTermsOf(g); tally.isHolding(terms, now) {
		t.Error("a gate that failed holds")
	}
}

// The value names no earlier cause: a measurement with data replaces one without, and a gap replaces a row that held.
func TestValueOfATallyNamesNoEarlierCause(t *testing.T) {
	g, now := newQueryGate(2, 0), time.Unix(1_000_000, 0)
	tally := Tally{}
	for _, c := range []struct {
		after time.Duration
		kind  OutcomeKind
		want  string
	}{
		{0, OutcomeNoData, "no data since 1970-01-12T13:46:40Z: text"},
		{time.Minute, OutcomeSuccess, "measuring"},
		{time.Minute, OutcomeSuccess, "text at 1970-01-12T13:48:40Z: 2 measurements in a row succeeded"},
		{4 * time.Minute, OutcomeSuccess, "measuring"},
		{time.Minute, OutcomeNoData, "measuring"}, // it is held for some minutes
		{5 * time.Minute, OutcomeNoData, "no data since 1970-01-12T13:53:40Z: text"},
	} {
		now = now.Add(c.after)
		if tally = tally.AddOutcome(g, Outcome{c.kind, "text"}, now); tally.Value != c.want {
			t.Errorf("at %s the value is %s, want %s", now.UTC(), tally.Value, c.want)
		}
		if isAbout := strings.HasPrefix(tally.Value, "no data since"); isAbout == tally.NoDataSince.IsZero() {
			t.Errorf("at %s no data comes since %s, and the value is %s", now.UTC(), tally.NoDataSince.UTC(), tally.Value)
		}
	}
}

// Only a verdict that waits or holds, about the gate as it is stated and the revision, is measured.
func TestListMeasuredGates(t *testing.T) {
	query := newQueryGate(1, 0)
	wait := v1alpha1.RolloutGate{Name: "time", Wait: &metav1.Duration{Duration: time.Hour}}
	hook := v1alpha1.RolloutGate{Name: "tests", Webhook: &v1alpha1.WebhookGate{URL: "https://ci", SecretRef: v1alpha1.GateSecretRef{Name: "ci"}}}
	r := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", GatesAfter: []v1alpha1.RolloutGate{*query, wait, hook}}}}
	verdict := func(g *v1alpha1.RolloutGate, state v1alpha1.GateState) v1alpha1.GateStatus {
		return v1alpha1.GateStatus{Stage: "canary", Name: g.Name, Revision: "r1", Hash: HashGate(g), State: state}
	}
	edited, elsewhere := verdict(query, v1alpha1.GateWaiting), verdict(query, v1alpha1.GateWaiting)
	edited.Hash, elsewhere.Stage = "other", "next"
	old := verdict(query, v1alpha1.GateWaiting)
	old.Revision = "r0"
	for name, c := range map[string]struct {
		verdicts []v1alpha1.GateStatus
		want     string
	}{
		"waits and holds": {[]v1alpha1.GateStatus{verdict(query, v1alpha1.GateWaiting), verdict(&wait, v1alpha1.GateWaiting), verdict(&hook, v1alpha1.GateSatisfied)}, "errors tests"},
		"decided":         {[]v1alpha1.GateStatus{verdict(query, v1alpha1.GatePassed), verdict(&hook, v1alpha1.GateFailed)}, ""},
		"other ones":      {[]v1alpha1.GateStatus{edited, elsewhere, old}, ""},
	} {
		var got []string
		for _, m := range ListMeasuredGates(r, c.verdicts, "r1") {
			got = append(got, m.Gate.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	if got := ListMeasuredGates(nil, []v1alpha1.GateStatus{verdict(query, v1alpha1.GateWaiting)}, "r1"); got != nil {
		t.Errorf("without a rollout %v is measured", got)
	}
}

// Fields of gates that measure are refused by their path.
func TestFieldsOfMeasuredGates(t *testing.T) {
	secret := &v1alpha1.GateSecretRef{Name: "s"}
	query := func(edit func(p *v1alpha1.PrometheusGate)) v1alpha1.RolloutGate {
		g := *newQueryGate(1, 0)
		edit(g.Prometheus)
		return g
	}
	hook := func(edit func(w *v1alpha1.WebhookGate)) v1alpha1.RolloutGate {
		g := v1alpha1.RolloutGate{Name: "tests", Webhook: &v1alpha1.WebhookGate{URL: "https://ci/gate?x=1", SecretRef: *secret}}
		edit(g.Webhook)
		return g
	}
	for _, c := range []struct {
		gate v1alpha1.RolloutGate
		want string
	}{
		{query(func(*v1alpha1.PrometheusGate) {}), "<nil>"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Server = "http://prometheus:9090" }), "<nil>"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Server, p.SecretRef = "http://prometheus:9090", secret }), "at.prometheus.secretRef: Forbidden: credentials are sent over TLS alone"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Query = "" }), "at.prometheus.query"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Query = strings.Repeat("x", 2049) }), "at.prometheus.query"},
		{query(func(p *v1alpha1.PrometheusGate) { p.SuccessCondition = "result" }), "at.prometheus.successCondition: Invalid value: \"result\": gives a double"},
		{query(func(p *v1alpha1.PrometheusGate) { p.SuccessCondition = strings.Repeat("x", 513) }), "at.prometheus.successCondition: Too long"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Interval = &metav1.Duration{Duration: 9 * time.Second} }), "at.prometheus.interval"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Interval = &metav1.Duration{Duration: 61 * time.Minute} }), "at.prometheus.interval"},
		{query(func(p *v1alpha1.PrometheusGate) { p.Count = 101 }), "at.prometheus.count"},
		{query(func(p *v1alpha1.PrometheusGate) { p.FailureLimit = -1 }), "at.prometheus.failureLimit"},
		{hook(func(*v1alpha1.WebhookGate) {}), "<nil>"},
		{hook(func(w *v1alpha1.WebhookGate) { w.SecretRef.Name = "" }), "at.webhook.secretRef.name: Required"},
		{hook(func(w *v1alpha1.WebhookGate) { w.Interval = &metav1.Duration{Duration: time.Second} }), "at.webhook.interval"},
		{hook(func(w *v1alpha1.WebhookGate) { w.Timeout = &metav1.Duration{Duration: 31 * time.Second} }), "at.webhook.timeout"},
		{v1alpha1.RolloutGate{Name: "both", CEL: "all.failed == 0", Webhook: hook(func(*v1alpha1.WebhookGate) {}).Webhook}, "give exactly one of"},
	} {
		if got := fmt.Sprint(checkGate(&c.gate, field.NewPath("at")).ToAggregate()); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, want %s", c.gate, got, c.want)
		}
	}
}

// A policy with a namespace reads Secrets of that namespace alone, and one without states each namespace.
func TestSecretsOfGates(t *testing.T) {
	gates := []v1alpha1.RolloutGate{*newQueryGate(1, 0), {Name: "tests", Webhook: &v1alpha1.WebhookGate{SecretRef: v1alpha1.GateSecretRef{Name: "ci"}}}}
	far := gates[1]
	far.Webhook = &v1alpha1.WebhookGate{SecretRef: v1alpha1.GateSecretRef{Name: "ci", Namespace: "ops"}}
	for _, c := range []struct {
		rollout   v1alpha1.Rollout
		namespace string
		want      string
	}{
		{v1alpha1.Rollout{Stages: []v1alpha1.RolloutStage{{GatesBefore: gates}}}, "shop", "at.stages[0].gatesBefore[1].webhook.secretRef ci; <nil>"},
		{v1alpha1.Rollout{Stages: []v1alpha1.RolloutStage{{GatesAfter: gates}}}, "", "at.stages[0].gatesAfter[1].webhook.secretRef.namespace: Required value"},
		{v1alpha1.Rollout{AutoStageOptions: &v1alpha1.AutoStageOptions{GatesBefore: []v1alpha1.RolloutGate{far}}}, "shop", "at.autoStageOptions.gatesBefore[0].webhook.secretRef.namespace: Forbidden"},
		{v1alpha1.Rollout{AutoStageOptions: &v1alpha1.AutoStageOptions{GatesBefore: []v1alpha1.RolloutGate{far}}}, "", "at.autoStageOptions.gatesBefore[0].webhook.secretRef ci; <nil>"},
	} {
		got := ""
		errs := CheckGateSecrets(&c.rollout, c.namespace, field.NewPath("at"), func(at *field.Path, ref v1alpha1.GateSecretRef) { got += at.String() + " " + ref.Name + "; " })
		if got += fmt.Sprint(errs.ToAggregate()); !strings.Contains(got, c.want) {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
