package admission

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/generate"
)

// validateSourceSet refuses a SourceSet that could not be honoured, and a ServiceAccount that the writer may not act as: the account
// writes the Sources, and admission of these bounds them by its rights.
func (p *AdmissionPlugin) validateSourceSet(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.SourceSet](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	if errs := generate.Check(now); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if before != nil && !makesOtherSources(before, now) {
		return nil
	}
	account := accountOfSourceSet(now)
	if err := p.requireAccount(ctx, a, account, fmt.Sprintf("spec.serviceAccountName: the SourceSet writes Sources by the rights of ServiceAccount %q", account)); err != nil {
		return err
	}
	made, isTemplate := generate.AccountOfSources(&now.Spec.Template)
	if isTemplate {
		return p.requireAccount(ctx, a, "", "spec.template.spec.serviceAccountName: parameters choose the ServiceAccount of the Sources among all of the namespace")
	}
	return p.requireAccount(ctx, a, made, fmt.Sprintf("spec.template.spec.serviceAccountName: the Sources write by the rights of ServiceAccount %q", made))
}

// requireAccount refuses a writer that may not act as a ServiceAccount of the namespace; as all of them for an empty name.
func (p *AdmissionPlugin) requireAccount(ctx context.Context, a admission.Attributes, account, why string) error {
	need := requiredRead{resource: schema.GroupResource{Resource: "serviceaccounts"}, namespace: a.GetNamespace(), name: account}
	if p.isAllowed(ctx, a.GetUserInfo(), "impersonate", need) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%s: the verb impersonate on it is needed, which %q lacks", why, a.GetUserInfo().GetName()))
}

// makesOtherSources reports whether an update lets the SourceSet write anything else by the rights of its account.
func makesOtherSources(before, now *v1alpha1.SourceSet) bool {
	old, is := before.Spec.DeepCopy(), now.Spec.DeepCopy()
	old.Suspend, is.Suspend = false, false
	return !apiequality.Semantic.DeepEqual(old, is)
}

func accountOfSourceSet(s *v1alpha1.SourceSet) string {
	if s.Spec.ServiceAccountName != "" {
		return s.Spec.ServiceAccountName
	}
	return v1alpha1.DefaultSourceAccount
}

// accountsOfReaders lists the accounts of the SourceSets that read a Repository: its content decides which Sources they write.
func accountsOfReaders(sets SourceSets, repo *v1alpha1.Repository) (out []string) {
	if sets == nil {
		return nil
	}
	for _, set := range sets.InNamespace(repo.Namespace) {
		for _, l := range generate.ListLeaves(&set.Spec) {
			if reading := l.Reading(); reading != nil && reading.Repository == repo.Name {
				out = append(out, accountOfSourceSet(set))
			}
		}
	}
	return out
}
