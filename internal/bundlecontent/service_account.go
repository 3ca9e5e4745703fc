package bundlecontent

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// qualifyNamespaceAccount returns the metadata of a namespace with its ServiceAccount as NAMESPACE/NAME. It returns
// nil, and why, for a ServiceAccount without a meaning: the content then keeps the metadata that it had.
func qualifyNamespaceAccount(meta *atoll.NamespaceMeta, name string) (*atoll.NamespaceMeta, error) {
	if meta == nil || meta.ServiceAccount == "" {
		return meta, nil
	}
	account, err := atoll.QualifyServiceAccount(meta.ServiceAccount, name)
	if err != nil {
		return nil, fmt.Errorf("annotation %s of namespace %s: %w", atoll.AnnotationServiceAccount, name, err)
	}
	qualified := *meta
	qualified.ServiceAccount = account
	return &qualified, nil
}

// treatmentOf returns how members treat the template of the key; nil: as all others. unedited is the former item where no
// user wrote since.
func (p *contentBuilder) treatmentOf(key atoll.ItemKey, template *unstructured.Unstructured, unedited *atoll.Item) (*atoll.Treatment, error) {
	if p.malformedAccount != nil {
		return nil, p.malformedAccount
	}
	treatment, err := p.itemRules.TreatmentOf(policymatch.SubjectFromObject(template))
	if err != nil {
		return nil, err
	}
	treatment = withoutNewHook(treatment, unedited)
	ofNamespace := ""
	switch meta := p.out.Content.Namespace; {
	case key.IsNamespace():
		ofNamespace = template.GetAnnotations()[atoll.AnnotationServiceAccount]
	case meta != nil:
		ofNamespace = meta.ServiceAccount
	}
	return policymatch.WithServiceAccount(treatment, ofNamespace, key, p.in.OwnNamespace.Name)
}
