package hostilehub

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/session"
)

func TestTheListNamesEachAttackOnce(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, a := range Attacks {
		if !name.MatchString(a.Name) || seen[a.Name] || a.Summary == "" || a.act == nil {
			t.Errorf("%+v is incomplete, or its name is used twice", a)
		}
		seen[a.Name] = true
	}
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"list"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != len(Attacks) {
		t.Errorf("%d lines for %d attacks:\n%s", lines, len(Attacks), &out)
	}
}

// All attacks run alone. Together are those that leave the session to others.
func TestRunsAreChosenByName(t *testing.T) {
	all, err := chooseRuns([]string{"all"})
	if err != nil || len(all) != len(Attacks) || len(all[0].attacks) != 1 {
		t.Errorf("all: %d runs, %v", len(all), err)
	}
	together, err := chooseRuns([]string{"together", "metadata"})
	if err != nil || len(together) != 2 || len(together[0].attacks) != len(Attacks)-1 || together[1].name != "metadata" {
		t.Errorf("together: %v", err)
	}
	if _, err := chooseRuns([]string{"unknown"}); err == nil || !strings.Contains(err.Error(), "attack-agent list") {
		t.Errorf("an unknown attack: %v", err)
	}
}

// The manifests of many values are JSON within a frame, so that only a count refuses them.
func TestManifestsOfManyValuesAreJSON(t *testing.T) {
	for i, body := range manyValueManifests() {
		if !json.Valid(body) || len(body) > session.MaxFrameBytes {
			t.Errorf("manifest %d of %d bytes is no JSON, or larger than a frame", i, len(body))
		}
	}
}
