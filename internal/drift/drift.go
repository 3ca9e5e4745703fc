// Package drift bounds and dates the differences that members report of objects which they observe instead
// of writing them.
//
// Contract: pure functions of values. Results share no lists with arguments, except where a
// function's comment states it.
package drift

import (
	"cmp"
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// LimitAndRedact returns a drift of the key's object within the bounds of atoll.Drift, and without the values of a
// Secret. The drift of another process is limited before it is used.
func LimitAndRedact(key atoll.ItemKey, d *atoll.Drift) *atoll.Drift {
	if d == nil {
		return nil
	}
	out := &atoll.Drift{Missing: d.Missing, Since: clampUnixTime(d.Since)}
	if atoll.IsDriftID(d.ID) {
		out.ID = d.ID
	}
	for _, f := range d.Fields[:min(len(d.Fields), atoll.MaxDriftFields)] {
		out.Fields = append(out.Fields, limitField(f, key.IsSecret()))
	}
	out.Total = max(d.Total, int32(len(out.Fields)))
	return out
}

func limitField(f atoll.DriftField, isSecret bool) atoll.DriftField {
	out := atoll.DriftField{Path: phrase.TruncateText(f.Path, atoll.MaxDriftPath), Since: clampUnixTime(f.Since)}
	if !isSecret {
		out.Live, out.Wanted = phrase.TruncateText(f.Live, atoll.MaxDriftValue), phrase.TruncateText(f.Wanted, atoll.MaxDriftValue)
	}
	for _, m := range f.Managers[:min(len(f.Managers), atoll.MaxDriftManagers)] {
		out.Managers = append(out.Managers, phrase.TruncateText(m, atoll.MaxDriftManager))
	}
	return out
}

func clampUnixTime(unix int64) int64 { return min(max(unix, 0), atoll.MaxUnixSeconds) }

// FirstField returns a drift with the first field alone, which shares it with d. Total stays.
func FirstField(d *atoll.Drift) *atoll.Drift {
	if d == nil || len(d.Fields) < 2 {
		return d
	}
	out := *d
	out.Fields = d.Fields[:1:1]
	return &out
}

// WithTimes returns a drift in which each difference has the time of the same difference before, or now
// without one, in Unix seconds.
func WithTimes(d, before *atoll.Drift, now int64) *atoll.Drift {
	out := d.WithoutTimes()
	if out == nil {
		return nil
	}
	if before == nil {
		before = &atoll.Drift{}
	}
	since := map[string]int64{}
	for _, f := range before.Fields {
		since[f.Path] = f.Since
	}
	for i := range out.Fields {
		f := &out.Fields[i]
		f.Since = cmp.Or(since[f.Path], now)
	}
	if out.Missing {
		out.Since = now
		if before.Missing {
			out.Since = cmp.Or(before.Since, now)
		}
	}
	return out
}

// Describe returns the paths of a drift, such as "2 fields differ: /spec/replicas, /spec/paused". Paths are as
// the member reports them, unescaped.
func Describe(d *atoll.Drift) string {
	if d.Missing {
		return "the member does not have the object"
	}
	paths := make([]string, 0, len(d.Fields))
	for _, f := range d.Fields {
		paths = append(paths, f.Path)
	}
	if more := int(d.Total) - len(paths); more > 0 {
		paths = append(paths, fmt.Sprintf("and %d more", more))
	}
	verb := "differ"
	if d.Total == 1 {
		verb = "differs"
	}
	return fmt.Sprintf("%s %s: %s", phrase.CountNoun(d.Total, "field"), verb, strings.Join(paths, ", "))
}
