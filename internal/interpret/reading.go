package interpret

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// reading says how the health of a custom kind is read, in this order: paused, a status at
// all, the generation that was observed, conditions, the phase, and at last the conditions
// that must be met.
type reading struct {
	// paused is a flag by which users suspend what the object does; once: unless it has
	// come to its end.
	paused path
	once   bool
	// config: without a status it is healthy; of other kinds, somebody is to write one.
	config bool
	// held, bad and busy are conditions that, while True, tell that it is suspended, that
	// there is trouble which does not pass, that work is going on.
	held, bad, busy []string
	// phase of the status, with what it means; others are judged as other, or Unknown.
	phase  path
	phases map[string]atoll.Health
	other  atoll.Health
	// message that goes with the phase.
	message path
	// must are conditions that have to be True. strict: False tells of trouble that does
	// not pass, as the kind's conditions have three values for that.
	must   []string
	strict bool
	// seen: that its controller has seen the generation is all there is to know.
	seen bool
}

func (r *reading) verdict(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if r.paused != nil && dig(obj.Object, r.paused) == true && !r.over(obj) {
		return atoll.Suspended, "Suspended", "it is suspended by " + strings.Join(r.paused, ".")
	}
	st := status(obj)
	switch {
	case unreadable(obj):
		return atoll.Unknown, "UnreadableStatus", "the status is not an object"
	case len(st) == 0 && r.config:
		return healthy()
	case len(st) == 0:
		return unreported()
	}
	if observed, ok := observedOf(st); ok && observed < obj.GetGeneration() {
		return unobserved()
	}
	cs := conditionsOf(st)
	outdate(cs, obj.GetGeneration())
	for _, of := range []struct {
		kinds []string
		means atoll.Health
	}{{r.held, atoll.Suspended}, {r.bad, atoll.Degraded}, {r.busy, atoll.Progressing}} {
		for _, kind := range of.kinds {
			if c := find(cs, kind); c.is("True") {
				return of.means, camel(orElse(c.reason, kind)), c.message
			}
		}
	}
	return r.settled(st, cs)
}

// over tells that what runs once has come to its end, by its phase.
func (r *reading) over(obj *unstructured.Unstructured) bool {
	h := r.phases[digText(status(obj), r.phase)]
	return r.once && (h == atoll.Healthy || h == atoll.Degraded)
}

// settled reads what is left once no condition speaks against it.
func (r *reading) settled(st map[string]any, cs []condition) (atoll.Health, string, string) {
	phase, told := digText(st, r.phase), r.seen
	if r.phase != nil && phase != "" {
		h, known := r.phases[phase]
		if h = cmp.Or(h, r.other); !known && r.other == "" {
			return atoll.Unknown, "UnreadableStatus", fmt.Sprintf("%s is %q, which means nothing here", strings.Join(r.phase, "."), phase)
		}
		if h != atoll.Healthy {
			return h, camel(phase), orElse(digText(st, r.message), fmt.Sprintf("%s is %s", strings.Join(r.phase, "."), phase))
		}
		told = true
	}
	for _, kind := range r.must {
		c := find(cs, kind)
		switch {
		case c.kind == "" && told:
			continue // what the phase says is enough
		case c.is("False") && r.strict:
			return atoll.Degraded, camel(orElse(c.reason, "Not"+kind)), orElse(c.message, fmt.Sprintf("condition %s is False", kind))
		case !c.is("True"):
			return atoll.Progressing, camel(orElse(c.reason, "Not"+kind)), orElse(c.message, fmt.Sprintf("condition %s is %s", kind, orElse(c.status, "not there yet")))
		}
	}
	if told || len(r.must) > 0 {
		return healthy()
	}
	return unreported()
}

func unreported() (atoll.Health, string, string) {
	return atoll.Progressing, "NotReported", "the member's controller has not said anything of it yet"
}

// judge is how a kind's health is read, as the table wants it.
func judge(r reading) verdict { return (&r).verdict }

// settles is for kinds whose controller tells no more than which generation it has seen.
var settles = judge(reading{seen: true})

// config is for kinds that are read by others and whose status, if any, tells nothing.
var config = kind{health: existing}

// ready is for kinds with the condition Ready, of which somebody takes care.
var ready = judge(reading{bad: []string{"Stalled"}, busy: []string{"Reconciling"}, must: []string{"Ready"}})

// camel makes a reason of a phase: "SUBMISSION_FAILED" is SubmissionFailed.
func camel(s string) string {
	parts := strings.FieldsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9')
	})
	for i, p := range parts {
		if strings.ToUpper(p) == p {
			p = strings.ToLower(p)
		}
		parts[i] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}

// good, bad, busy and still keep the tables of phases short.
const (
	good  = atoll.Healthy
	bad   = atoll.Degraded
	busy  = atoll.Progressing
	still = atoll.Suspended
)

// endedIn tells that an object has run to completion once its phase is one of these.
func endedIn(at path, phases ...string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		phase := digText(status(obj), at)
		for _, p := range phases {
			if phase == p {
				return true
			}
		}
		return false
	}
}

// endedBy tells that an object has run to completion once one of these conditions is True.
func endedBy(conditions ...string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		cs := conditionsOf(status(obj))
		for _, kind := range conditions {
			if find(cs, kind).is("True") {
				return true
			}
		}
		return false
	}
}
