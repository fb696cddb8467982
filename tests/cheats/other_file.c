/* expected: includes "/etc/passwd" */
#include "/etc/passwd"
