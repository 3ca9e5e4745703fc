package rollout

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/phrase"
)

const (
	maxQueryBytes     = 2048
	maxConditionBytes = 512
	maxMeasurements   = 100
)

// measuredGate is what the kinds of gates that measure share. It decides by the tally of the gate.
type measuredGate struct{}

func (measuredGate) judgeFacts(g *gate, in *gateFacts) (v gateVerdict) {
	terms, _ := measurementTermsOf(&g.RolloutGate)
	if in.record == nil {
		return gateVerdict{}
	}
	t := &in.record.Tally
	if v.value, v.noDataSince = t.Value, t.NoDataSince; t.At.IsZero() {
		return v
	}
	switch {
	case t.hasFailed(terms):
		v.failed = true
	case t.Successes >= terms.needed && !in.now.Before(t.staleAt(terms)):
		v.value = "no measurement since " + phrase.FormatTime(t.At)
	default:
		if v.holds = t.isHolding(terms, in.now); v.holds {
			v.again = t.staleAt(terms)
		}
	}
	return v
}

func (measuredGate) waitReason() atoll.Reason { return atoll.ReasonWaitsForMeasurement }

// prometheusGate holds after enough results of a query in a row that are a success.
type prometheusGate struct{ measuredGate }

func (prometheusGate) isStated(g *v1alpha1.RolloutGate) bool { return g.Prometheus != nil }

func (prometheusGate) checkFields(g *v1alpha1.RolloutGate, at *field.Path) (errs field.ErrorList) {
	p, at := g.Prometheus, at.Child("prometheus")
	if p.SecretRef != nil && strings.HasPrefix(p.Server, "http:") {
		errs = append(errs, field.Forbidden(at.Child("secretRef"), "credentials are sent over TLS alone: not to http://"))
	}
	if n := len(p.Query); n == 0 || n > maxQueryBytes {
		errs = append(errs, field.Invalid(at.Child("query"), phrase.TruncateText(p.Query, 64), "must have from 1 to 2048 bytes"))
	}
	if n := len(p.SuccessCondition); n > maxConditionBytes {
		errs = append(errs, field.TooLong(at.Child("successCondition"), "", maxConditionBytes))
	} else if _, err := expr.CompileResultExpression(p.SuccessCondition); err != nil {
		errs = append(errs, field.Invalid(at.Child("successCondition"), phrase.TruncateText(p.SuccessCondition, 64), err.Error()))
	}
	errs = append(errs, checkGateTime(p.Interval, 10*time.Second, time.Hour, at.Child("interval"))...)
	if p.Count < 0 || p.Count > maxMeasurements {
		errs = append(errs, field.Invalid(at.Child("count"), p.Count, "must be from 1 to 100"))
	}
	if p.FailureLimit < 0 || p.FailureLimit > maxMeasurements {
		errs = append(errs, field.Invalid(at.Child("failureLimit"), p.FailureLimit, "must be from 0 to 100"))
	}
	return errs
}

func (prometheusGate) describe(g *gate) string {
	p := g.Prometheus
	text := "measurements of prometheus " + phrase.EscapeLine(phrase.TruncateText(hostOf(p.Server), 128))
	if n := p.NeededSuccesses(); n > 1 {
		text += ", " + phrase.CountNoun(n, "time") + " in a row"
	}
	return text + " with " + phrase.EscapeLine(phrase.TruncateText(p.SuccessCondition, 128))
}

// webhookGate holds once a service of the user answers with Pass.
type webhookGate struct{ measuredGate }

func (webhookGate) isStated(g *v1alpha1.RolloutGate) bool { return g.Webhook != nil }

func (webhookGate) checkFields(g *v1alpha1.RolloutGate, at *field.Path) (errs field.ErrorList) {
	w, at := g.Webhook, at.Child("webhook")
	if w.SecretRef.Name == "" {
		errs = append(errs, field.Required(at.Child("secretRef", "name"), "requests are signed by the key hmac of a Secret"))
	}
	errs = append(errs, checkGateTime(w.Interval, 10*time.Second, time.Hour, at.Child("interval"))...)
	return append(errs, checkGateTime(w.Timeout, time.Second, 30*time.Second, at.Child("timeout"))...)
}

func (webhookGate) describe(g *gate) string {
	return "the answer Pass of webhook " + phrase.EscapeLine(phrase.TruncateText(hostOf(g.Webhook.URL), 128))
}

// newGateWait returns the wait of a stage for a gate.
func (s GateStates) newGateWait(stage int, g *gate) StageWait {
	out := StageWait{Stage: stage, Reason: g.kind.waitReason(), gate: g}
	v := s.find(g)
	if v == nil {
		return out
	}
	if IsMeasured(&g.RolloutGate) {
		out.gateValue = cmp.Or(v.Value, measuringText)
	}
	switch {
	case v.State == v1alpha1.GateFailed:
		out.Reason = atoll.ReasonGateFailed
	case v.NoDataSince != nil:
		out.Reason = atoll.ReasonGateHasNoData
	}
	return out
}

// describeStoredWait returns what rows wait for that a gate holds, with the value of its verdict.
func (g *gate) describeStoredWait(reason atoll.Reason, value string) string {
	text := g.describeWait()
	if reason == atoll.ReasonGateFailed {
		text = "another template, or `atoll rollout resume`: gate " + g.Name + " of stage " + g.stageName + " failed"
	}
	if value != "" {
		text += " (" + value + ")"
	}
	return text
}

// hostOf returns the host of a URL, which admission has checked. Its path and query may hold what readers of a plan need not see.
func hostOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	return host
}

func checkGateTime(d *metav1.Duration, least, most time.Duration, at *field.Path) field.ErrorList {
	if d == nil || d.Duration >= least && d.Duration <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, d.Duration.String(), "must be a duration from "+phrase.FormatDuration(least)+" to "+phrase.FormatDuration(most))}
}

// EachGate calls fn for each gate that a rollout states, with its path.
func EachGate(r *v1alpha1.Rollout, at *field.Path, fn func(g *v1alpha1.RolloutGate, at *field.Path)) {
	each := func(gates []v1alpha1.RolloutGate, at *field.Path) {
		for i := range gates {
			fn(&gates[i], at.Index(i))
		}
	}
	if r == nil {
		return
	}
	for i := range r.Stages {
		each(r.Stages[i].GatesBefore, at.Child("stages").Index(i).Child("gatesBefore"))
		each(r.Stages[i].GatesAfter, at.Child("stages").Index(i).Child("gatesAfter"))
	}
	if r.AutoStageOptions != nil {
		each(r.AutoStageOptions.GatesBefore, at.Child("autoStageOptions", "gatesBefore"))
	}
}

// CheckGateSecrets returns the fields of a rollout's gates whose Secret could not be read: a policy or a strategy with a namespace reads
// Secrets of that namespace, and one without states the namespace of each. It calls named for the others.
func CheckGateSecrets(r *v1alpha1.Rollout, namespace string, at *field.Path, named func(at *field.Path, ref v1alpha1.GateSecretRef)) (errs field.ErrorList) {
	EachGate(r, at, func(g *v1alpha1.RolloutGate, at *field.Path) {
		ref, kind := g.SecretOf(), "webhook"
		if g.Prometheus != nil {
			kind = "prometheus"
		}
		in := at.Child(kind, "secretRef")
		switch {
		case ref == nil:
		case namespace != "" && ref.Namespace != "":
			errs = append(errs, field.Forbidden(in.Child("namespace"), "the Secret is of the same namespace as this object; leave it out"))
		case namespace == "" && ref.Namespace == "":
			errs = append(errs, field.Required(in.Child("namespace"), "an object without a namespace states that of the Secret"))
		default:
			named(in, *ref)
		}
	})
	return errs
}
