package changewindow

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
)

// Mask has a bit for each window that concerns a cluster. The bits above are the number of the cluster's time zone, where one of
// these windows follows it. Clusters of one mask may change at the same times.
type Mask uint32

// MaxWindows is how many windows a mask has bits for.
const MaxWindows = 16

// Bounds of a search for the next time at which changes may start: its days, and how many starts it computes.
const (
	searchDays  = 400
	searchSteps = 2000
)

// search is what is left of a bounded search.
type search struct{ left int }

// Windows are compiled windows; nil: changes may always start.
type Windows struct {
	list []window
	// allow has the bits of the Allow windows, and byCluster those of the windows that follow the time zone of the cluster.
	allow, byCluster Mask
}

// window is a compiled window. Its schedule is read when it is first needed.
type window struct {
	selector labels.Selector
	duration time.Duration
	schedule func() *zonedSchedule
}

// CompileWindows compiles windows; nil: there are none.
func CompileWindows(stated []v1alpha1.ChangeWindow) *Windows {
	if len(stated) == 0 {
		return nil
	}
	out := &Windows{}
	for i, w := range stated[:min(len(stated), MaxWindows)] { // admission refuses more
		c := window{selector: labels.Everything(), duration: w.Duration.Duration}
		c.schedule = sync.OnceValue(func() *zonedSchedule {
			wall, err := parseSchedule(w.Schedule)
			zone, zoneErr := loadZone(w.TimeZone)
			if err != nil || zoneErr != nil {
				return nil
			}
			return &zonedSchedule{wall: wall, zone: zone}
		})
		if w.ClusterSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(w.ClusterSelector)
			if err == nil { // admission refuses others; such a window concerns all clusters
				c.selector = selector
			}
		}
		if w.UseClusterTimeZone {
			out.byCluster |= 1 << i
		}
		if w.Type != v1alpha1.ChangeWindowDeny {
			out.allow |= 1 << i
		}
		out.list = append(out.list, c)
	}
	return out
}

// MaskOf returns which windows concern a cluster with these labels and this time zone; empty: the Cluster states none.
func (w *Windows) MaskOf(clusterLabels map[string]string, timeZone string) (m Mask) {
	if w == nil {
		return 0
	}
	for i := range w.list {
		if w.list[i].selector.Matches(labels.Set(clusterLabels)) {
			m |= 1 << i
		}
	}
	if m&w.byCluster != 0 {
		m |= clusterZones.numberOf(timeZone) << MaxWindows
	}
	return m
}

// scheduleOf returns the schedule of a window for clusters with a mask; nil: it cannot be read.
func (w *Windows) scheduleOf(m Mask, i int) *zonedSchedule {
	z, number := w.list[i].schedule(), w.zoneOf(m, i)
	if z == nil || number == 0 {
		return z
	}
	zone := clusterZones.zoneOf(number)
	if zone == nil {
		return nil
	}
	return &zonedSchedule{wall: z.wall, zone: zone}
}

// zoneOf returns the number of the time zone that a window takes from clusters with a mask; 0: it has its own.
func (w *Windows) zoneOf(m Mask, i int) Mask {
	if w.byCluster&(1<<i) == 0 {
		return 0
	}
	return m >> MaxWindows
}

// findStart returns the first start after a time; zero: there is none, or the search is at its bound.
func (w *window) findStart(z *zonedSchedule, after time.Time, in *search) time.Time {
	if in.left--; in.left < 0 {
		return time.Time{}
	}
	return z.findStart(after)
}

// stateAt reports whether a window is open at a time, and until when at least that stays so; zero: always.
func (w *window) stateAt(z *zonedSchedule, at time.Time, isAllow bool, in *search) (isOpen bool, until time.Time) {
	if z == nil { // an Allow window never opens, a Deny window never closes
		return !isAllow, time.Time{}
	}
	start := z.findStart(at.Add(-w.duration))
	if start.IsZero() || start.After(at) {
		return false, start
	}
	end := start.Add(w.duration)
	for last := at.AddDate(0, 0, searchDays); end.Before(last); {
		if start = w.findLaterStart(z, end, in); start.IsZero() {
			break
		}
		end = start.Add(w.duration)
	}
	return true, end
}

// findLaterStart returns a start by which a window that would end at a time stays open; zero: there is none. It looks close to the
// end first, so that dense starts are not all computed.
func (w *window) findLaterStart(z *zonedSchedule, end time.Time, in *search) time.Time {
	for back := time.Minute; ; back *= 2 {
		back = min(back, w.duration)
		start := w.findStart(z, end.Add(-back), in)
		if !start.IsZero() && !start.After(end) {
			return start
		}
		if start.IsZero() || back == w.duration {
			return time.Time{}
		}
	}
}

// verdict is what the windows of a cluster decide at a time.
type verdict struct {
	isAllowed, isDenied bool
	// isDeniedForGood: a Deny window never closes.
	isDeniedForGood bool
	// until is when one of the windows opens or closes; zero: never. allowed is when the next Allow window opens, and denied is when
	// each Deny window that is open now has closed.
	until, allowed, denied time.Time
}

func (v *verdict) addAllow(isOpen bool, until time.Time) {
	v.until = earlierOf(v.until, until)
	if v.isAllowed = v.isAllowed || isOpen; !isOpen {
		v.allowed = earlierOf(v.allowed, until)
	}
}

func (v *verdict) addDeny(isOpen bool, until time.Time) {
	if v.until = earlierOf(v.until, until); !isOpen {
		return
	}
	v.isDenied, v.isDeniedForGood = true, v.isDeniedForGood || until.IsZero()
	if until.After(v.denied) {
		v.denied = until
	}
}

// isOpen reports whether changes may start.
func (v *verdict) isOpen() bool { return v.isAllowed && !v.isDenied }

// notBefore returns a time before which changes may not start, where they may not now; zero: never.
func (v *verdict) notBefore() time.Time {
	switch {
	case v.isDeniedForGood:
		return time.Time{}
	case !v.isAllowed:
		return v.allowed
	}
	return v.denied
}

// judgeAt returns what the windows of a mask decide at a time.
func (w *Windows) judgeAt(m Mask, at time.Time, in *search) verdict {
	return w.judgeBy(m, func(i int) (bool, time.Time) { return w.list[i].stateAt(w.scheduleOf(m, i), at, w.isAllow(i), in) })
}

// judgeBy returns what the windows of a mask decide, by the state of each of them.
func (w *Windows) judgeBy(m Mask, stateOf func(i int) (isOpen bool, until time.Time)) verdict {
	v := verdict{isAllowed: m&w.allow == 0}
	for i := range w.list {
		switch {
		case m&(1<<i) == 0:
		case w.isAllow(i):
			v.addAllow(stateOf(i))
		default:
			v.addDeny(stateOf(i))
		}
	}
	return v
}

func (w *Windows) isAllow(i int) bool { return w.allow&(1<<i) != 0 }

// earlierOf returns the earlier of two times. Zero is never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// findOpening returns the first time at which changes of clusters with a mask may start. opens is false where none is found within the
// bounds of the search: there is none before at.
func (w *Windows) findOpening(m Mask, from time.Time, steps int) (at time.Time, opens bool) {
	in := &search{left: steps}
	return w.searchOpening(m, from, w.judgeAt(m, from, in), in)
}

// searchOpening is findOpening with what the windows decide at the beginning. It looks further than that while the search has steps left.
func (w *Windows) searchOpening(m Mask, from time.Time, v verdict, in *search) (at time.Time, opens bool) {
	at = from
	for end := from.AddDate(0, 0, searchDays); ; v = w.judgeAt(m, at, in) {
		if in.left--; v.isOpen() {
			return at, true
		}
		next := v.notBefore()
		if next.IsZero() || next.After(end) {
			return end, false
		}
		if at = next; in.left <= 0 {
			return at, false
		}
	}
}

// View is what windows decide at one moment. All its searches share one bound, since clusters may have many masks.
type View struct {
	windows *Windows
	now     time.Time
	in      search
	states  map[windowInZone]windowState
	judged  map[Mask]Opening
}

// windowInZone is a window, with the number of the time zone that it takes from its clusters; 0: it has its own.
type windowInZone struct {
	index int
	zone  Mask
}

// windowState is whether a window is open at the moment of a View, and until when at least that stays so.
type windowState struct {
	isOpen bool
	until  time.Time
}

// Opening is when changes of clusters with a mask may start.
type Opening struct {
	// IsOpen: they may start now. Until is when that may be different; zero: never.
	IsOpen bool
	Until  time.Time
	// Opens: they may start at At, where they may not now. Otherwise they may not before At, as far as is searched.
	Opens bool
	At    time.Time
}

// NewView returns what the windows decide at a time.
func (w *Windows) NewView(now time.Time) View {
	return View{windows: w, now: now, in: search{left: searchSteps}}
}

// stateOf returns the state of a window for clusters with a mask. It is computed once for a time zone.
func (v *View) stateOf(m Mask, i int) (isOpen bool, until time.Time) {
	key := windowInZone{i, v.windows.zoneOf(m, i)}
	s, isKnown := v.states[key]
	if !isKnown {
		s.isOpen, s.until = v.windows.list[i].stateAt(v.windows.scheduleOf(m, i), v.now, v.windows.isAllow(i), &v.in)
		if v.states == nil {
			v.states = map[windowInZone]windowState{}
		}
		v.states[key] = s
	}
	return s.isOpen, s.until
}

// OpeningOf returns when changes of clusters with a mask may start. Nothing is searched twice.
func (v *View) OpeningOf(m Mask) Opening {
	if v.windows == nil || m == 0 {
		return Opening{IsOpen: true}
	}
	if o, has := v.judged[m]; has {
		return o
	}
	is := v.windows.judgeBy(m, func(i int) (bool, time.Time) { return v.stateOf(m, i) })
	out := Opening{IsOpen: is.isOpen(), Until: is.until}
	if !out.IsOpen {
		out.At, out.Opens = v.windows.searchOpening(m, v.now, is, &v.in)
	}
	if v.judged == nil {
		v.judged = map[Mask]Opening{}
	}
	v.judged[m] = out
	return out
}
