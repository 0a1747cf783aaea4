// Durations in words, the same as the server writes them (templatetags/stepkeeper.py).
export function durationText(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  const whole = Math.floor(s);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function ageText(seconds) {
  const s = Math.max(0, seconds);
  return s < 10 ? `${Math.floor(s)} s ago` : `${durationText(s)} ago`;
}
