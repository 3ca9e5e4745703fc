package assess

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/kinds"
)

// CheckItemRules returns the feedback, health and completion of rules that no member can evaluate, those that
// select Secrets, and those of objects that never run to completion.
func CheckItemRules(rules []v1alpha1.ItemRule, at *field.Path) (errs field.ErrorList) {
	if n := countExpressionBytes(rules); n > maxExpressionBytes {
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("their different expressions of health and completion have %d bytes together, and at most %d are compiled", n, maxExpressionBytes))}
	}
	for i := range rules {
		errs = append(errs, checkItemRule(&rules[i], at.Index(i))...)
		errs = append(errs, checkTTL(rules, i, at.Index(i))...)
	}
	return errs
}

// checkTTL refuses a time after completion for kinds that never run to completion, where no rule defines that they do.
func checkTTL(rules []v1alpha1.ItemRule, index int, at *field.Path) (errs field.ErrorList) {
	rule := &rules[index]
	if rule.TTLSecondsAfterFinished == nil || slices.ContainsFunc(rules, func(r v1alpha1.ItemRule) bool { return r.Completion != nil }) {
		return nil
	}
	for _, rs := range rule.ResourceSelectors {
		gv, err := schema.ParseGroupVersion(rs.APIVersion)
		if err != nil || rs.Kind == "*" || strings.Contains(rs.APIVersion, "*") || kinds.RunsOnce(schema.GroupKind{Group: gv.Group, Kind: rs.Kind}) {
			continue
		}
		errs = append(errs, field.Invalid(at.Child("ttlSecondsAfterFinished"), *rule.TTLSecondsAfterFinished,
			fmt.Sprintf("a %s never runs to completion: state completion, too", rs.Kind)))
	}
	return errs
}

// maxExpressionBytes bounds the different expressions of the rules of a policy. Each KiB takes up to 70 ms to compile.
const maxExpressionBytes = 16 << 10

func countExpressionBytes(rules []v1alpha1.ItemRule) int {
	var texts atoll.ExpressionTexts
	for i := range rules {
		completion := ""
		if c := rules[i].Completion; c != nil {
			completion = c.Expression
		}
		texts.Add(rules[i].Health, completion)
	}
	return texts.Bytes()
}

func checkItemRule(rule *v1alpha1.ItemRule, at *field.Path) (errs field.ErrorList) {
	for j, f := range rule.Feedback {
		if _, err := compilePath(f.JSONPath); err != nil {
			errs = append(errs, field.Invalid(at.Child("feedback").Index(j).Child("jsonPath"), f.JSONPath, err.Error()))
		}
	}
	for j, h := range rule.Health {
		errs = append(errs, checkHealthRule(h, at.Child("health").Index(j))...)
	}
	if rule.Completion != nil {
		errs = append(errs, checkCondition(rule.Completion.Expression, at.Child("completion", "expression"))...)
	}
	if len(rule.Feedback) == 0 && len(rule.Health) == 0 && rule.Completion == nil {
		return nil
	}
	return append(errs, checkNoSecrets(rule.ResourceSelectors, at.Child("resourceSelectors"))...)
}

func checkHealthRule(h v1alpha1.HealthRule, at *field.Path) field.ErrorList {
	errs := checkCondition(h.Expression, at.Child("expression"))
	if r := atoll.Reason(h.Reason); r != "" && r != atoll.ReasonHealthRuleUnmet && atoll.IsReason(r) {
		errs = append(errs, field.Invalid(at.Child("reason"), h.Reason, "it is a reason of Atoll, which has another meaning: choose another one"))
	}
	return errs
}

// checkNoSecrets refuses selectors of Secrets.
func checkNoSecrets(selectors []v1alpha1.ResourceSelector, at *field.Path) (errs field.ErrorList) {
	for j, rs := range selectors {
		if rs.Kind == "Secret" && (rs.APIVersion == "v1" || rs.APIVersion == "*") {
			errs = append(errs, field.Forbidden(at.Index(j), "a rule of feedback, health or completion selects no Secrets: their contents stay in clusters"))
		}
	}
	return errs
}

// checkedConditions holds why expressions do not compile; nil for those that do.
var checkedConditions = lru.New(1024)

func checkCondition(text string, at *field.Path) field.ErrorList {
	checked, known := checkedConditions.Get(text)
	if !known {
		_, err := expr.CompileObjectCondition(text)
		if checked = err; len(text) <= expr.MaxLength {
			checkedConditions.Add(text, checked)
		}
	}
	if err, fails := checked.(error); fails {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	return nil
}
