package builders

import (
	"slices"
	"strconv"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// The annotations of a hook of Helm: its events, its weight and its delete policies.
const (
	hookAnnotation       = "helm.sh/hook"
	hookWeightAnnotation = "helm.sh/hook-weight"
	hookDeleteAnnotation = "helm.sh/hook-delete-policy"
)

// quietHooks are events that neither an apply nor a removal has.
var quietHooks = []string{"test", "test-success", "test-failure", "pre-rollback", "post-rollback"}

// appliedHooks are Atoll's events of those of Helm that an apply or a removal has.
var appliedHooks = map[string]atoll.HookEvent{
	"pre-install": atoll.HookPreInstall, "pre-upgrade": atoll.HookPreUpgrade, "post-install": atoll.HookPostInstall, "post-upgrade": atoll.HookPostUpgrade,
	"pre-delete": atoll.HookPreDelete, "post-delete": atoll.HookPostDelete,
}

// deletePolicies are Atoll's delete policies of those of Helm.
var deletePolicies = map[string]atoll.HookDeletePolicy{
	"before-hook-creation": atoll.HookBeforeCreation, "hook-succeeded": atoll.HookSucceeded, "hook-failed": atoll.HookFailed,
}

// convertHooks makes Helm's hooks among the objects from an index on hooks of Atoll. Hooks without such an event are
// taken out, and so is what the Source omits or refuses.
func (b *builder) convertHooks(from int) {
	stated := b.job.Options.Helm
	kept := b.Objects[:from]
	for _, o := range b.Objects[from:] {
		annotations := listHookAnnotations(o)
		events := listWords(annotations, hookAnnotation)
		unknown := slices.ContainsFunc(events, func(e string) bool { return appliedHooks[e] == "" && !slices.Contains(quietHooks, e) })
		switch {
		case len(annotations) == 0:
			kept = append(kept, o)
		case !unknown && !slices.ContainsFunc(events, func(e string) bool { return appliedHooks[e] != "" }):
		case stated != nil && stated.OmitHooks:
			b.omitted++
		case unknown || stated != nil && stated.RefuseHooks:
			b.refuseHook(o, events)
		default:
			convertHook(o, annotations, events)
			kept = append(kept, o)
		}
	}
	b.Objects = kept
}

// refuseHook refuses the content for a hook.
func (b *builder) refuseHook(o render.Object, events []string) {
	if b.failure == nil {
		b.failure = render.NewFailure(atoll.ReasonHooksUnsupported,
			"%s is a hook (%s), which the Source refuses or clusters do not run; disable it by the chart's values, or state spec.build.helm.hooks: Omit", describeObject(o), strings.Join(events, ","))
	}
}

// convertHook gives an object the annotations by which clusters run it. Those that it states, or those of Argo CD with the same
// meaning, come first.
func convertHook(o render.Object, annotations []map[string]any, events []string) {
	meta, _ := o.Fields["metadata"].(map[string]any)
	own, _ := meta["annotations"].(map[string]any)
	if own == nil {
		own = map[string]any{}
		meta["annotations"] = own
	}
	if own[atoll.AnnotationHook] == nil && own[atoll.AnnotationArgoCDHook] == nil {
		own[atoll.AnnotationHook] = joinKnown(events, appliedHooks)
		if policies := joinKnown(listWords(annotations, hookDeleteAnnotation), deletePolicies); policies != "" {
			own[atoll.AnnotationHookDelete] = policies
		}
	}
	weights := listWords(annotations, hookWeightAnnotation)
	if own[atoll.AnnotationWave] != nil || own[atoll.AnnotationArgoCDWave] != nil || len(weights) == 0 {
		return
	}
	weight, err := strconv.Atoi(weights[len(weights)-1])
	if err == nil && weight != 0 { // Helm reads another text as 0
		own[atoll.AnnotationWave] = strconv.Itoa(max(-atoll.MaxWave, min(weight, atoll.MaxWave)))
	}
}

// joinKnown returns what is known of the words, each once.
func joinKnown[W ~string](words []string, known map[string]W) string {
	var out []string
	for _, word := range words {
		if to := string(known[word]); to != "" && !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	return strings.Join(out, ",")
}

// listHookAnnotations returns the annotations of a hook, with those of Lists that it is an item of; none for an ordinary
// object. A List that is a hook makes one of each item.
func listHookAnnotations(o render.Object) (out []map[string]any) {
	meta, _ := o.Fields["metadata"].(map[string]any)
	own, _ := meta["annotations"].(map[string]any)
	all := append(slices.Clone(o.ListAnnotations), own)
	if !slices.ContainsFunc(all, func(a map[string]any) bool { _, isHook := a[hookAnnotation].(string); return isHook }) {
		return nil
	}
	return all
}

// listWords returns the words of an annotation, in lower case. Commas separate them.
func listWords(annotations []map[string]any, name string) (words []string) {
	for _, one := range annotations {
		text, _ := one[name].(string)
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.ToLower(strings.TrimSpace(word)); word != "" {
				words = append(words, word)
			}
		}
	}
	return words
}
