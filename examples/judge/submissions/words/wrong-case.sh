# Distinguishes upper and lower case.
export LC_ALL=C
tr -s ' \n' '\n\n' | grep . | sort | uniq -c | sort -k1,1nr -k2,2 | head -n 10 | sed 's/^ *//'
