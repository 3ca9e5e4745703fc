package bundlecontent

import (
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A hook that an older hub did not read counts once its template is edited.
func TestAnUpgradeMakesNoHook(t *testing.T) {
	hook := &atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreSync}}}
	waved := &atoll.Treatment{Hook: hook.Hook, Wave: 3}
	for name, c := range map[string]struct{ now, former, want *atoll.Treatment }{
		"no hook":             {&atoll.Treatment{Wave: 1}, nil, &atoll.Treatment{Wave: 1}},
		"none at all":         {nil, nil, nil},
		"not read before":     {hook, nil, nil},
		"read in part before": {waved, &atoll.Treatment{Wave: 3}, &atoll.Treatment{Wave: 3}},
		"read before":         {waved, hook, waved},
	} {
		if got := withoutNewHook(c.now, &atoll.Item{Treatment: c.former}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if got := withoutNewHook(c.now, nil); got != c.now {
			t.Errorf("%s, edited: %+v", name, got)
		}
	}
	if waved.Hook == nil {
		t.Error("the treatment is changed")
	}
}
