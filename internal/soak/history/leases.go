package history

func (x *index) addFree(r Record) {
	k := leaseKey{r.Proc, r.Lease}
	if l := x.leases[k]; l != nil {
		l.freed = min(l.freed, r.Call)
		l.unused = r.Op == Free && r.Token == l.grant.Token-1
		if r.Valid != 0 {
			l.claims = append(l.claims, claim{l.asked, r.Call, r.Valid})
		}
	}
	t := x.tries[k]
	if t != nil && r.Op == Undo {
		t.last = max(t.last, r.Call)
	}
	if t != nil && r.Outcome == OK {
		t.freedAt = min(t.freedAt, r.Ret)
	}
}

func (x *index) addRenewal(r Record) {
	if t := x.tries[leaseKey{r.Proc, r.Lease}]; t != nil {
		t.renewed = max(t.renewed, r.TTL)
	}
	l := x.leases[leaseKey{r.Proc, r.Lease}]
	if l == nil {
		return
	}
	l.renewsAsked = append(l.renewsAsked, r)
	if r.Ret == Never {
		l.unanswered = min(l.unanswered, r.Call)
		return
	}
	l.claims = append(l.claims, claim{r.Call, r.Ret, r.Valid})
	switch r.Outcome {
	case OK:
		l.acknowledged = max(l.acknowledged, r.Call+r.TTL)
		l.asked = max(l.asked, r.Call)
	case Lost:
		l.lost = min(l.lost, r.Ret)
	}
}
