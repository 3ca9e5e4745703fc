package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxForeignWarnings bounds the clusters in the warnings of one deletion.
	maxForeignWarnings = 10
	// maxForeignNames bounds the objects in one of them.
	maxForeignNames = 5
)

// FindForeign requests from the members of a namespace the objects that would keep the namespace there. Its time is bounded.
type FindForeign func(ctx context.Context, namespace string) []atoll.MemberForeignObjects

// warnOfForeign warns the user that deletes a namespace of the clusters that keep it, and of those whose answer is missing.
func (p *AdmissionPlugin) warnOfForeign(ctx context.Context, a admission.Attributes) {
	if p.Foreign == nil || p.Own(a.GetUserInfo()) || !beginsNamespaceDeletion(a) {
		return
	}
	var texts, unknown []string
	for _, m := range p.Foreign(ctx, a.GetName()) {
		switch text := p.describeForeign(ctx, a, m); {
		case len(m.Objects) > 0:
			texts = append(texts, text)
		case text != "":
			unknown = append(unknown, text)
		}
	}
	texts = append(texts, unknown...)
	for _, text := range texts[:min(len(texts), maxForeignWarnings)] {
		warning.AddWarning(ctx, "", text)
	}
	if more := len(texts) - maxForeignWarnings; more > 0 {
		warning.AddWarning(ctx, "", fmt.Sprintf("%d more clusters may keep the namespace %s", more, a.GetName()))
	}
}

// beginsNamespaceDeletion reports whether a request begins the deletion of a namespace. From then on, the Event ForeignObjects reports
// what keeps the namespace.
func beginsNamespaceDeletion(a admission.Attributes) bool {
	kind := a.GetKind()
	if a.GetOperation() != admission.Delete || a.GetSubresource() != "" || kind.Group != "" || kind.Kind != "Namespace" {
		return false
	}
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() == nil
}

// describeForeign returns the warning about one cluster, empty where the namespace goes. Names are of kinds that the user may list in
// the namespace on the hub.
func (p *AdmissionPlugin) describeForeign(ctx context.Context, a admission.Attributes, m atoll.MemberForeignObjects) string {
	if m.Err != nil {
		return phrase.EscapeLine(phrase.TruncateText(fmt.Sprintf("it is not known whether cluster %s keeps the namespace %s: %v", m.Cluster, a.GetName(), m.Err), 512))
	}
	var names []string
	hidden, may := 0, map[string]bool{}
	for _, o := range m.Objects {
		resource := o.Resource.String()
		if _, known := may[resource]; !known {
			may[resource] = p.isAllowed(ctx, a.GetUserInfo(), "list", requiredRead{resource: o.Resource, namespace: a.GetName()})
		}
		if !may[resource] {
			hidden++
			continue
		}
		names = append(names, resource+"/"+o.Name)
	}
	all := int64(len(m.Objects)) + m.More
	switch {
	case all == 0 && m.Unread == "":
		return ""
	case all == 0:
		return phrase.EscapeLine(fmt.Sprintf("it is not known whether cluster %s keeps the namespace %s: %s", m.Cluster, a.GetName(), m.Unread))
	}
	text := fmt.Sprintf("cluster %s keeps the namespace %s until objects that Atoll did not apply are deleted there: %s",
		m.Cluster, a.GetName(), phrase.CountNoun(all, "object"))
	if len(names) > 0 {
		text += " (" + phrase.JoinFirst(names, maxForeignNames, len(names)) + ")"
	}
	if hidden > 0 {
		text += fmt.Sprintf(", of which %d are of kinds that you may not list", hidden)
	}
	return phrase.EscapeLine(text)
}
