package bundlecontent

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestRecalledDeletionsAreHeld(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	web, api, conf, shared := shopKey("Deployment", "web"), shopKey("Deployment", "api"), shopKey("ConfigMap", "conf"), shopKey("ConfigMap", "shared")
	m.putTemplate(web, "1", "ConfigMap/conf", "ConfigMap/shared")
	m.putTemplate(api, "2", "ConfigMap/shared")
	m.putTemplate(conf, "3")
	m.putTemplate(shared, "4")
	m.placers[web], m.placers[api] = PlacedByThis, PlacedByThis
	b.wantContent("before", "ConfigMap/conf@3+ ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1", 1)

	mark := func(note string) {
		o := m.templates[web].DeepCopy()
		o.SetAnnotations(map[string]string{atoll.AnnotationRecalled: note})
		m.templates[web] = o
	}
	mark(atoll.RecalledDeleted + " yesterday, says tokyo")
	held := b.wantContent("held, with what only it needs", "ConfigMap/conf@3+(RemovalHeld) ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1(RemovalHeld)", 2)
	plan, items := atoll.PlanDeletionsRememberedByMembers("b", &held.Content)
	if plan == "" || len(items) != 1 || items[0].Key != web {
		t.Errorf("plan %q of %v", plan, items)
	}
	delete(m.placers, web)
	b.wantContent("its policy goes too", "ConfigMap/conf@3+(RemovalHeld) ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1(RemovalHeld)", 2)
	m.placers[web] = PlacedByThis

	mark(atoll.RecalledKept + " since today")
	kept := b.wantContent("kept", "ConfigMap/conf@3+ ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1", 3)
	if plan, _ := atoll.PlanDeletionsRememberedByMembers("b", &kept.Content); plan != "" {
		t.Errorf("plan %q though nothing is held", plan)
	}

	mark(atoll.RecalledDeleted + " last week, says oslo")
	again := b.wantContent("held again", "ConfigMap/conf@3+(RemovalHeld) ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1(RemovalHeld)", 4)
	if other, _ := atoll.PlanDeletionsRememberedByMembers("b", &again.Content); other == plan || other == "" {
		t.Error("another deletion has the same plan")
	}
	m.markDeleting(web)
	b.wantContent("confirmed", "ConfigMap/shared@4+ Deployment/api@2 -ConfigMap/conf@3:Unused[] -Deployment/web@1:Deleted[]", 5)
}
