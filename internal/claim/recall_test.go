package claim

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestDeletionsThatMembersRememberAreHeldBack(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	web, api, conf, shared := obj("Deployment", "web"), obj("Deployment", "api"), obj("ConfigMap", "conf"), obj("ConfigMap", "shared")
	m.put(web, "1", "ConfigMap/conf", "ConfigMap/shared")
	m.put(api, "2", "ConfigMap/shared")
	m.put(conf, "3")
	m.put(shared, "4")
	m.claims[web], m.claims[api] = Mine, Mine
	b.want("before", "ConfigMap/conf@3+ ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1", 1)

	mark := func(note string) {
		o := m.templates[web].DeepCopy()
		o.SetAnnotations(map[string]string{atoll.AnnotationRecalled: note})
		m.templates[web] = o
	}
	mark(atoll.RecalledDeleted + " yesterday, says tokyo")
	held := b.want("held, with what only it needs", "ConfigMap/conf@3+(RemovalHeld) ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1(RemovalHeld)", 2)
	plan, items := atoll.RecallPlan("b", &held.Content)
	if plan == "" || len(items) != 1 || items[0].Key != web {
		t.Errorf("plan %q of %v", plan, items)
	}
	delete(m.claims, web)
	b.want("its policy goes too", "ConfigMap/conf@3+(RemovalHeld) ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1(RemovalHeld)", 2)
	m.claims[web] = Mine

	mark(atoll.RecalledKept + " since today")
	kept := b.want("kept", "ConfigMap/conf@3+ ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1", 3)
	if plan, _ := atoll.RecallPlan("b", &kept.Content); plan != "" {
		t.Errorf("plan %q though nothing is held", plan)
	}

	mark(atoll.RecalledDeleted + " last week, says oslo")
	again := b.want("held anew", "ConfigMap/conf@3+(RemovalHeld) ConfigMap/shared@4+ Deployment/api@2 Deployment/web@1(RemovalHeld)", 4)
	if other, _ := atoll.RecallPlan("b", &again.Content); other == plan || other == "" {
		t.Error("another deletion has the same plan")
	}
	m.deleting(web)
	b.want("confirmed", "ConfigMap/shared@4+ Deployment/api@2 -ConfigMap/conf@3:Unused[] -Deployment/web@1:Deleted[]", 5)
}
