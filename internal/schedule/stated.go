package schedule

import (
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// FilterCapacity is what keeps a Bundle out of a cluster whose stated capacity it would
// exceed.
const FilterCapacity = "capacity"

// full tells which bound keeps the Bundle from coming to the cluster; in words where they
// are asked for.
func (in *Input) full(c *Cluster) (reason string, full bool) {
	if len(c.Capacity) == 0 || in.Demand == nil {
		return "", false
	}
	others, _ := in.used(c)
	for i, ask := range in.Demand.least {
		b, over := c.Capacity.exceeded(others, ask, nil)
		if !over {
			return "", false
		}
		if i == 0 && !in.Terse {
			reason = fmt.Sprintf("%s is %s, of which %s are used, and the bundle asks for %s", b.Path(), b.Text(b.N), b.Text(others.Of(b.Name)), b.Text(ask.Of(b.Name)))
		}
	}
	return reason, true
}

// outgrows tells which bound keeps the Bundle's row from the newest revision: with the
// share that it has, that asks for more than what is left.
func (in *Input) outgrows(c *Cluster, row *atoll.RowSpec) string {
	if len(c.Capacity) == 0 || in.Demand == nil {
		return ""
	}
	others, own := in.used(c)
	ask := in.Demand.Use(row.Assigned)
	b, over := c.Capacity.exceeded(others, ask, own)
	if !over {
		return ""
	}
	return fmt.Sprintf("%s is %s, others use %s, and the newest revision asks for %s instead of %s",
		b.Path(), b.Text(b.N), b.Text(others.Of(b.Name)), b.Text(ask.Of(b.Name)), b.Text(own.Of(b.Name)))
}

func (in *Input) used(c *Cluster) (others, own Use) {
	if in.Used == nil {
		return nil, nil
	}
	return in.Used(c)
}

// admit decides by the cluster's stated capacity what the other filters leave open, and
// notes clusters that have to have more for the Bundle to come or to change.
func (d *Decision) admit(f *Filter, in *Input, c *Cluster, row *atoll.RowSpec, v *Verdict) {
	if len(c.Capacity) == 0 || in.Demand == nil {
		return
	}
	switch {
	case row != nil && v.Outcome != Gone:
		if v.Full = in.outgrows(c, row); v.Full != "" {
			d.Crowded = append(d.Crowded, c.Name)
		}
	case v.Outcome == Placed, v.Outcome == Out && v.Filter == FilterGroups && f.other(c) != nil:
		if reason, full := in.full(c); full {
			v.Outcome, v.Placement, v.Filter, v.Reason = Out, "", FilterCapacity, reason
			d.Crowded = append(d.Crowded, c.Name)
		}
	}
}

// state what the capacity of a cluster that is to hold the Bundle is, for who divides and
// who explains.
func (d *Decision) state(in *Input, v *Verdict, c *Cluster) {
	if len(c.Capacity) == 0 || in.Demand == nil || in.Terse && len(in.Workloads) == 0 {
		return
	}
	if d.stated == nil {
		d.stated = map[string]stated{}
	}
	s := stated{bounds: c.Capacity, held: v.Full != ""}
	s.others, s.before = in.used(c)
	d.stated[c.Name] = s
}

// Hold the rows in these clusters at the revision and the share that they have.
func (d Decision) Hold(clusters map[string]string) Decision {
	d.Verdicts, d.stated = slices.Clone(d.Verdicts), maps.Clone(d.stated)
	d.Crowded = slices.AppendSeq(slices.Clone(d.Crowded), maps.Keys(clusters))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		reason, holds := clusters[v.Cluster]
		if !holds {
			continue
		}
		v.Full = reason
		if s, ok := d.stated[v.Cluster]; ok {
			s.held = true
			d.stated[v.Cluster] = s
		}
	}
	return d
}

// takes tells whether the cluster fits, and has capacity left where the Bundle would come
// anew. What has none is noted.
func (in *Input) takes(f *Filter, c *Cluster) bool {
	if !f.Admits(c) {
		return false
	}
	if in.row(c) == nil {
		if _, full := in.full(c); full {
			in.crowded = append(in.crowded, c.Name)
			return false
		}
	}
	return true
}

// stated capacity of a cluster that holds the Bundle, or is to.
type stated struct {
	bounds, others Use
	// before: what the Bundle used so far.
	before Use
	// held: the row stays as it is.
	held bool
}

// Bound of a cluster's stated capacity, and how much of it is used.
type Bound struct {
	// Path in the Cluster's spec.
	Path string `json:"path"`
	// Stated, and Used by all Bundles there, this one included, as people write amounts.
	Stated string `json:"stated"`
	Used   string `json:"used"`
	// Over: more is used than stated.
	Over bool `json:"over,omitempty"`
}

// Bounds of the capacity that a cluster states and the Bundle is in or is to come to; nil
// where it states none.
func (d Decision) Bounds(cluster string) (out []Bound) {
	s, ok := d.stated[cluster]
	if !ok {
		return nil
	}
	used := s.others.With(s.before, 1)
	for _, b := range s.bounds {
		n := used.Of(b.Name)
		out = append(out, Bound{Path: b.Path(), Stated: b.Text(b.N), Used: b.Text(n), Over: n > b.N})
	}
	return out
}

// admits tells how many replicas of a workload a cluster may have at most by the capacity
// that it states, those that it has included.
func (s *sharing) admits(at int, st *stated, key string) int64 {
	has := s.assigned(int32(at), key)
	if st.held {
		return has
	}
	more := int64(Unbounded)
	for i := range s.demand.parts {
		if p := &s.demand.parts[i]; p.key == key {
			more = st.bounds.fit(st.others.With(s.usedBy(at), 1), p.each)
		}
	}
	if more > Unbounded-has {
		return Unbounded
	}
	return has + more
}

// usedBy is what the Bundle uses of a cluster with what it has, and was given so far.
func (s *sharing) usedBy(at int) Use {
	if s.own != nil && s.own[at] != nil {
		return s.own[at]
	}
	return s.demand.Use(s.rows[at].Assigned)
}

// limit the shares of a workload by stated capacity.
func (s *sharing) limit(item int) {
	s.limits = nil
	key := s.out.key(item)
	for cluster, st := range s.stated {
		at, ok := s.out.at(cluster)
		if !ok {
			continue
		}
		n := s.admits(at, &st, key)
		if n == Unbounded {
			continue
		}
		if s.limits == nil {
			s.limits = slices.Repeat([]int64{Unbounded}, len(s.out.Shares))
		}
		s.limits[at] = n
	}
}

// within the limit of a cluster, and so many.
func (s *sharing) within(at int32, n int64) int64 {
	if s.limits == nil {
		return n
	}
	return min(n, s.limits[at])
}

// spend what clusters were given of a workload on top of what they had, and note which
// were kept from more.
func (s *sharing) spend(item int) {
	key := s.out.key(item)
	for cluster := range s.stated {
		at, ok := s.out.at(cluster)
		if !ok {
			continue
		}
		n := s.out.Shares[at].Replicas[item]
		if s.limits != nil && n >= s.limits[at] && n < s.workloads[item].Replicas {
			s.out.Crowded = append(s.out.Crowded, cluster)
		}
		grown := n - s.assigned(int32(at), key)
		for i := range s.demand.parts {
			if p := &s.demand.parts[i]; p.key == key && grown > 0 {
				if s.own == nil {
					s.own = make([]Use, len(s.out.Shares))
				}
				s.own[at] = s.usedBy(at).With(p.each, grown)
			}
		}
	}
}

// spare tells how many replicas of what is divided a cluster admits by its stated
// capacity, those that it has included, and no more of any than there are.
func (in *Input) spare(c *Cluster) (sum int64) {
	others, _ := in.used(c)
	var has map[string]int64
	if row := in.row(c); row != nil {
		has = row.Assigned
	}
	used := others.With(in.Demand.Use(has), 1)
	for i := range in.Workloads {
		w := &in.Workloads[i]
		if w.stateful() {
			continue
		}
		key := w.Key.String()
		n := min(max(has[key], 0), max(w.Replicas, 0))
		for p := range in.Demand.parts {
			if p := &in.Demand.parts[p]; p.key == key {
				more := min(c.Capacity.fit(used, p.each), max(w.Replicas, 0)-n)
				used, n = used.With(p.each, more), n+more
			}
		}
		sum = atoll.Plus(sum, n)
	}
	return sum
}
