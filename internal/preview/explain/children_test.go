package explain

import (
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestAChildNamesItsParent(t *testing.T) {
	in := explainInput(webKey, shopBundle())
	in.PolicyMatch = &PolicyMatch{
		Winner: &Candidate{Kind: v1alpha1.SourceAnnotation, Name: "a", Selects: "Shop/a"}, Parent: "Shop/a", Why: "a controller made it for Shop/a, and it goes where that goes",
	}
	const says = "\nPlaced with its parent Shop/a, by the annotation of Shop/a: a controller made it for Shop/a, and it goes where that goes.\n"
	if text := Explain(in).FormatText(false); !strings.Contains(text, says) {
		t.Errorf("lacks %q:\n%s", says, text)
	}
}

func TestWhatStaysOnTheHubSaysWhy(t *testing.T) {
	const why = `it has atoll.dev/hub-only: "true"`
	key := atoll.ItemKey{Group: "example.com", Kind: "Shop", Namespace: "shop", Name: "a"}
	for name, bundles := range map[string][]Bundle{"without children": nil, "with children": {shopBundle()}} {
		in := explainInput(key, bundles...)
		in.PolicyMatch.HubOnly = why
		e := Explain(in)
		if want := "Shop/a in namespace shop stays on the hub: " + why + "."; e.Verdict != want {
			t.Errorf("%s: %q, want %q", name, e.Verdict, want)
		}
		if text := e.FormatText(false); !strings.Contains(text, "\nIt stays on the hub: "+why+".\nWhat controllers on the hub make of it is placed by PropagationPolicy web") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	in := explainInput(webKey, shopBundle())
	in.PolicyMatch.HubOnly = why
	if v := Explain(in).Verdict; strings.Contains(v, "stays on the hub") {
		t.Errorf("it is still in clusters: %q", v)
	}
}
